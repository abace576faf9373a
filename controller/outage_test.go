// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// step is one Reconcile of the key "a" of a rig.
type step = func(*rig, context.Context, types.NamespacedName) (controller.Result, error)

// outage refuses lists and watches of Secrets, and ends all watches.
func (r *rig) outage() {
	r.api.Intercept(func(q *sim.Request) (*http.Response, error) {
		if q.Resource.Resource == "secrets" && (q.Verb == "list" || q.Verb == "watch") {
			return q.Refuse()
		}
		return nil, nil
	})
	r.api.CutWatches()
	synctest.Wait()
}

// oneSecret creates a Secret with generateName, unless the cache has one. Its n-th call then calls
// then(n).
func oneSecret(heedStale bool, then func(*rig)) step {
	return func(r *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
		again := controller.Result{RequeueAfter: 100 * time.Millisecond}
		if err := controller.Stale(ctx); heedStale && err != nil {
			return controller.Result{}, err
		}
		for _, err := range r.secrets.All(ctx, cache.ListOptions{}) {
			return again, err
		}
		_, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "s-"}})
		if then != nil {
			then(r)
		}
		return again, err
	}
}

func (r *rig) secretsLive() int { return r.api.Stored(sim.Secrets) }

// TestC6_WritesSurviveAnOutage: if an informer fails before it shows a write, the key waits until
// it has recovered and shows the write. The reconciler need not check Stale.
func TestC6_WritesSurviveAnOutage(t *testing.T) {
	for _, heeds := range []bool{true, false} {
		t.Run(fmt.Sprintf("heeds Stale %t", heeds), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				create := oneSecret(heeds, (*rig).outage)
				r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, slices.Repeat([]step{create}, 1000)...)
				r.start()
				r.after(2500 * time.Millisecond)
				r.api.Lag(1500 * time.Millisecond)
				r.api.Intercept(nil)
				testkit.AtLeast(t, len(r.after(time.Minute)), 2)
				testkit.Equal(t, r.secretsLive(), 1)
			})
		})
	}
}

// TestC6_WaitsAgainAfterTheBound: after a recovery, a key waits again for writes that it gave up
// during the failure.
func TestC6_WaitsAgainAfterTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		look := func(r *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			return controller.Result{RequeueAfter: 9 * time.Second}, nil // due after 14 s
		}
		create := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			defer r.outage()
			return createSecret(r, ctx, key)
		}
		r := newRig(t, controller.Options{ReadYourWrites: 5 * time.Second}, workqueue.Options[types.NamespacedName]{}, nil, create, look, seeSecret)
		r.start()
		r.after(6 * time.Second) // given up after 5 s
		r.api.Lag(16 * time.Second)
		r.api.Intercept(nil)
		at := r.after(time.Minute)
		if len(at) != 3 || at[1] < 5*time.Second || at[1] > 6*time.Second || at[2] < 16*time.Second {
			t.Errorf("reconciled at %v, want the third to see the Secret", at)
		}
		testkit.NotEqual(t, r.stale[1], nil)
		testkit.Equal(t, r.stale[2], nil)
	})
}

// TestC6_AsksAboutLostAnswers: after a lost answer the API server is asked about the write, and the
// key waits for it.
func TestC6_AsksAboutLostAnswers(t *testing.T) {
	for _, stored := range []bool{true, false} {
		t.Run(fmt.Sprintf("stored %t", stored), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lose := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
					r.api.Lag(10 * time.Second)
					lost := false
					r.api.Intercept(func(q *sim.Request) (*http.Response, error) {
						if q.Verb != "create" || lost {
							return nil, nil
						}
						lost = true
						if stored {
							resp, err := q.Forward(r.api)
							ok(t, err)
							resp.Body.Close()
						}
						return q.Fail(http.StatusGatewayTimeout, "no answer")
					})
					defer r.api.Intercept(nil)
					_, err := oneSecret(false, nil)(r, ctx, key)
					testkit.NotEqual(t, err, nil, "the answer was not lost")
					return controller.Result{RequeueAfter: time.Millisecond}, nil
				}
				see := func(r *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
					n := 0
					for _, err := range r.secrets.All(ctx, cache.ListOptions{}) {
						ok(t, err)
						n++
					}
					testkit.Equal(t, n == 1, stored, fmt.Sprintf("the cache has %d Secrets", n))
					return controller.Result{RequeueAfter: 35 * time.Second}, nil
				}
				r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, lose, see, idle)
				r.start()
				at := r.after(time.Minute)
				if stored && (len(at) != 3 || at[1] < 10*time.Second) || !stored && (len(at) != 3 || at[1] < time.Second || at[1] > 2*time.Second) {
					t.Errorf("reconciled at %v", at)
				}
				testkit.Equal(t, r.stale[0], nil)
				testkit.NotEqual(t, r.stale[1], nil)
				testkit.Equal(t, r.stale[2], nil)
				testkit.Equal(t, r.control.Remembered(), 0)
			})
		})
	}
}

// TestC6_AsksSoonAfterAnOutage: after an outage of any length the API server is soon asked about
// lost answers, and again if it cannot answer yet.
func TestC6_AsksSoonAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lose := func(r *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			r.api.Intercept(func(q *sim.Request) (*http.Response, error) {
				if q.Verb == "create" {
					return q.Fail(http.StatusGatewayTimeout, "no answer")
				}
				return nil, nil
			})
			_, _ = r.secret().Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "s-"}})
			r.outage()
			return controller.Result{RequeueAfter: time.Millisecond}, nil
		}
		r := newRig(t, controller.Options{ReadYourWrites: time.Hour}, workqueue.Options[types.NamespacedName]{}, nil, lose)
		r.start()
		r.want(r.after(10*time.Minute), 0)
		refused := 0
		r.api.Intercept(func(q *sim.Request) (*http.Response, error) {
			if q.Verb == "list" && q.Resource.Resource == "secrets" && refused < 2 {
				refused++
				return q.Fail(http.StatusServiceUnavailable, "starting")
			}
			return nil, nil
		})
		testkit.Len(t, r.after(10*time.Second), 2, "reconciled at")
		testkit.AtLeast(t, refused, 2)
	})
}

// TestC6_NotKnown: the informer is the host's, so the API server cannot be asked about a lost
// answer. The key does not wait longer than needed to find that out. Stale names the write for the
// usual time.
func TestC6_NotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			r.api.Intercept(func(q *sim.Request) (*http.Response, error) {
				if q.Verb == "create" {
					return q.Fail(http.StatusGatewayTimeout, "no answer")
				}
				return nil, nil
			})
			defer r.api.Intercept(nil)
			_, err := createPod(ctx, r.client, key.Name)
			testkit.NotEqual(t, err, nil, "the answer was not lost")
			return controller.Result{RequeueAfter: time.Millisecond}, nil
		}
		in := func(d time.Duration) step {
			return func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
				return controller.Result{RequeueAfter: d}, nil
			}
		}
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, lost, in(time.Millisecond), in(28*time.Second), in(2*time.Second))
		r.api.Serve(sim.Pods)
		factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(r.api.Config()), 0)
		pods := factory.Core().V1().Pods().Informer()
		r.control.Watch(source.Kind(cache.Adopt[*corev1.Pod](nil, pods, cache.AdoptOptions{}), handler.Owner(r.maps)))
		stop := make(chan struct{})
		factory.Start(stop)
		defer factory.Shutdown()
		defer close(stop)
		r.start()
		ms := time.Millisecond
		r.want(r.after(time.Minute), 0, 1001*ms, 1002*ms, 29_002*ms, 31_002*ms)
		if len(r.awaited) != 1 || r.awaited[0].Doubts == nil || r.awaited[0].Expired {
			t.Errorf("the hook was told %+v", r.awaited)
		}
		for i, stale := range r.stale {
			doubtful := i > 0 && i < 4
			if doubtful != (stale != nil) || doubtful && strings.Count(stale.Error(), "504") != 1 {
				t.Errorf("stale in Reconcile %d: %v", i, stale)
			}
		}
	})
}

func createPod(ctx context.Context, c *client.Client, name string) (*corev1.Pod, error) {
	return client.For[*corev1.Pod](c).Create(ctx, &corev1.Pod{ObjectMeta: named(name)})
}

// TestC6_StaleIsNoFailure: a key that returns Stale is parked until its informers have recovered,
// without a failed attempt or an error in the log.
func TestC6_StaleIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines testkit.Buffer
		heed := func(r *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			return controller.Result{RequeueAfter: 100 * time.Millisecond}, controller.Stale(ctx)
		}
		r := newRig(t, controller.Options{Logger: slog.New(slog.NewTextHandler(&lines, nil))}, workqueue.Options[types.NamespacedName]{}, nil, slices.Repeat([]step{heed}, 10_000)...)
		r.start()
		r.outage()
		before := len(r.after(3 * time.Minute))
		look, _ := r.control.Queue().Lookup(types.NamespacedName{Namespace: "default", Name: "a"})
		testkit.Equal(t, look.State, workqueue.Parked)
		testkit.Equal(t, look.Attempts, 0)
		testkit.Contains(t, look.ParkReason, "Secret.v1")
		testkit.AtMost(t, before, 10) // one after each Options.ReadYourWrites
		r.api.Intercept(nil)
		testkit.AtLeast(t, len(r.after(5*time.Second)), before+2)
		if slices.Contains(r.ends, hook.Failed) || !slices.Contains(r.ends, hook.Stale) {
			t.Errorf("the Reconciles ended as %v", r.ends)
		}
		testkit.NotContains(t, lines.String(), "level=ERROR")
		testkit.AtMost(t, strings.Count(lines.String(), "returned Stale"), 10)
	})
}

// TestC6_StaleIsNotHurried: a key that always returns Stale is reconciled at most once a second,
// even if Options.ReadYourWrites is shorter.
func TestC6_StaleIsNotHurried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heed := func(_ *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, controller.Stale(ctx)
		}
		r := newRig(t, controller.Options{ReadYourWrites: time.Millisecond}, workqueue.Options[types.NamespacedName]{}, nil, slices.Repeat([]step{heed}, 10_000)...)
		r.start()
		r.outage()
		before := len(r.ends)
		r.control.Queue().Add(types.NamespacedName{Namespace: "default", Name: "a"})
		r.after(time.Minute)
		if n := len(r.ends) - before; n < 30 || n > 62 {
			t.Errorf("%d Reconciles in an outage of a minute", n)
		}
	})
}

// TestC6_OtherErrorsBesideStaleFail: only the error of Stale alone is no failure.
func TestC6_OtherErrorsBesideStaleFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both := func(r *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			r.outage()
			return controller.Result{}, errors.Join(errors.New("broken"), controller.Stale(ctx))
		}
		wrapped := func(r *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, fmt.Errorf("not yet: %w", controller.Stale(ctx))
		}
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, both, wrapped)
		r.start()
		r.after(time.Second)
		testkit.SlicesEqual(t, r.ends, []hook.Outcome{hook.Failed, hook.Stale}, "the Reconciles ended as")
	})
}

// TestC6_RetriesWhenTheAPIServerIsBack: a key that failed during or shortly before an outage is
// retried when the informer has recovered, whatever its backoff.
func TestC6_RetriesWhenTheAPIServerIsBack(t *testing.T) {
	fail := func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
		return controller.Result{}, errors.New("broken")
	}
	failLater := func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
		return controller.Result{}, controller.RetryAfter(errors.New("busy"), time.Hour)
	}
	during := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		r.outage()
		return fail(r, ctx, key)
	}
	for name, test := range map[string]struct {
		first step
		want  int
	}{"during": {during, 2}, "before": {fail, 2}, "RetryAfter": {failLater, 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := workqueue.Options[types.NamespacedName]{Backoff: workqueue.Exponential{Base: time.Hour}}
				r := newRig(t, controller.Options{}, q, nil, test.first, fail)
				r.start()
				r.want(r.after(time.Second), 0)
				r.outage()
				r.want(r.after(time.Minute), 0)
				r.api.Intercept(nil)
				at := r.after(5 * time.Second)
				if len(at) != test.want {
					t.Fatalf("reconciled at %v, want %d by 5 s after the end of the outage", at, test.want)
				}
				look, _ := r.control.Queue().Lookup(types.NamespacedName{Namespace: "default", Name: "a"})
				testkit.Equal(t, look.Attempts, test.want, "failures are counted")
				r.want(r.after(58*time.Minute), at...) // a failure after the outage is unrelated
			})
		})
	}
}

// TestLog_FewLinesPerGroup: many failures of one group are few lines, and each group has its own.
func TestLog_FewLinesPerGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines testkit.Buffer
		all := []func(n int) error{
			func(n int) error {
				return fmt.Errorf("website %d: Put %q: dial tcp 127.0.0.1:%d: connect: refused", n, "https://x/default/a", n)
			},
			func(n int) error {
				return apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "a", fmt.Errorf("changed at %d", n))
			},
			func(n int) error {
				return errors.Join(fmt.Errorf("wrapped: %w", errors.New("full")), fmt.Errorf("at %d", n))
			},
		}
		n := 0
		fail := func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
			n++
			return controller.Result{}, all[n%len(all)](n)
		}
		q := workqueue.Options[types.NamespacedName]{Backoff: workqueue.Exponential{Base: time.Millisecond, Max: time.Millisecond}}
		r := newRig(t, controller.Options{Logger: slog.New(slog.NewTextHandler(&lines, nil))}, q, nil, slices.Repeat([]step{fail}, 30_000)...)
		r.start()
		r.after(15 * time.Second)
		for _, text := range []string{"connect: refused", "Operation cannot be fulfilled", "wrapped: full"} {
			testkit.Count(t, lines.String(), text, 11) // ten, and one after 10 s
		}
		testkit.Contains(t, lines.String(), "unlogged=3", "the log does not count the lines that were left out")
	})
}

// TestC6_ADeleteThatNoInformerSaw: another client deletes a new object before any informer has seen
// it. The key creates it again, although there was no event.
func TestC6_ADeleteThatNoInformerSaw(t *testing.T) {
	for name, during := range map[string]bool{"while the Reconcile runs": true, "after it": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				unseen := func(r *rig) {
					r.api.Remove(sim.Secrets, "default", "a")
					r.api.Expire() // the next watch cannot resume, and relists
					r.api.CutWatches()
					time.Sleep(20 * time.Second)
				}
				create := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
					r.api.Lag(time.Hour)
					_, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: named(key.Name)})
					if during {
						unseen(r)
					}
					return controller.Result{}, err
				}
				look := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
					testkit.ErrorSatisfies(t, testkit.Err(r.secrets.Get(ctx, key)), apierrors.IsNotFound, "the cache has the Secret that was deleted")
					return controller.Result{}, nil
				}
				// The list of ConfigMaps makes nothing due.
				predicates := []handler.Predicate{handler.ResourceVersionChanged}
				r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, predicates, create, look)
				r.start()
				r.after(time.Second)
				if !during {
					unseen(r)
				}
				testkit.Len(t, r.after(time.Minute), 2, "reconciled at")
			})
		})
	}
}
