// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
)

// annotate updates the newest version with a value.
func (f *failing) annotate(ctx context.Context, value string) {
	f.t.Helper()
	d, err := client.For[*appsv1.Deployment](f.client).GetLive(ctx, f.key)
	ok(f.t, err)
	d.Annotations = map[string]string{"value": value}
	_, err = f.deploys.Update(ctx, d)
	ok(f.t, err)
}

// TestC7_AMergedEventIsNotItsOwn: the handler fails for another client's change, and its retry
// combines it with the key's own write.
func TestC7_AMergedEventIsNotItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := 0
		mapped := handler.Func[types.NamespacedName](func(_ context.Context, e handler.Event) ([]types.NamespacedName, error) {
			if e.Op == handler.Update && broken > 0 {
				broken--
				return nil, errors.New("the mapper fails once")
			}
			return []types.NamespacedName{e.Key()}, nil
		})
		f := newFailingWith(t, controller.Options{}, mapped, func(f *failing, ctx context.Context) error {
			if f.calls.n() == 1 {
				broken = 1
				f.correct(5)
				f.annotate(ctx, "x")
			}
			return errFlaky
		})
		f.start()
		f.want(9*time.Second, 0, lag)
	})
}

// TestC7_AMarkedObjectIsNotItsOwn: the object was being deleted before.
func TestC7_AMarkedObjectIsNotItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFailing(t, controller.Options{}, func(f *failing, ctx context.Context) error {
			if f.calls.n() == 1 {
				others["a deletion"](f)
				ok(t, f.deploys.Delete(ctx, f.key))
			}
			return errFlaky
		})
		f.changed(func(u *unstructured.Unstructured) { u.SetFinalizers([]string{"x/y"}) })
		f.start()
		f.want(9*time.Second, 0, lag)
	})
}

// TestC7_ALostAnswerIsNoProof: the write may have been a no-op.
func TestC7_ALostAnswerIsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFailing(t, controller.Options{}, func(f *failing, ctx context.Context) error {
			if f.calls.n() == 1 {
				f.correct(5)
				f.api.Intercept(func(r *sim.Request) (*http.Response, error) {
					if r.Verb != "patch" {
						return nil, nil
					}
					f.api.Intercept(nil)
					_, _ = r.Forward(f.api)
					return nil, errors.New("the connection broke")
				})
				_, err := f.deploys.PatchStatus(ctx, f.key, types.MergePatchType, []byte(`{"status":{"replicas":0}}`))
				return err
			}
			return errFlaky
		})
		f.start()
		if at := f.after(9 * time.Second); len(at) != 2 || at[1] > 2*time.Second {
			t.Errorf("reconciled at %v", at)
		}
	})
}

// unproven is when the attempts of a key begin that has a backoff of 10 s and changes its object in
// each, without a proof. At last, the backoff is shorter.
var unproven = []time.Duration{0, lag, lag + 1*time.Second, lag + 3*time.Second, lag + 7*time.Second, lag + 15*time.Second, lag + 25*time.Second}

// TestC7_SeveralWritesWithoutAProof: of one object, with and without a resourceVersion.
func TestC7_SeveralWritesWithoutAProof(t *testing.T) {
	for name, both := range map[string][2]writeFunc{
		"apply and status":    {unlocked["Apply"], unlocked["ApplyStatus"]},
		"patch and status":    {unlocked["Patch, the spec"], unlocked["PatchStatus, a condition"]},
		"two statuses":        {unlocked["PatchStatus, merge"], unlocked["PatchStatus, a condition"]},
		"update and status":   {nil, unlocked["PatchStatus, merge"]},
		"one status, retried": {unlocked["PatchStatus, merge"], unlocked["PatchStatus, merge"]},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFailing(t, controller.Options{}, func(f *failing, ctx context.Context) error {
					n := int32(f.calls.n())
					if both[0] == nil {
						f.annotate(ctx, fmt.Sprint(n))
					} else {
						ok(t, both[0](ctx, f.deploys, f.key, n))
					}
					ok(t, both[1](ctx, f.deploys, f.key, n))
					return errFlaky
				})
				f.start()
				f.want(35*time.Second, unproven...)
			})
		})
	}
}

// TestC7_GivenUpForLonger: without a proof, the event of an own write wakes a key that gave up,
// ever later. With one, never.
func TestC7_GivenUpForLonger(t *testing.T) {
	for verb, write := range unlocked {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFailing(t, controller.Options{MaxAttempts: 1}, func(f *failing, ctx context.Context) error {
					ok(t, write(ctx, f.deploys, f.key, int32(f.calls.n())))
					return errFlaky
				})
				f.start()
				want := []time.Duration{0, lag}
				for wait := time.Second; wait <= 1024*time.Second; wait *= 2 {
					want = append(want, want[len(want)-1]+wait)
				}
				end := want[len(want)-1]
				f.want(time.Hour, append(want, end+1024*time.Second)...)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFailing(t, controller.Options{MaxAttempts: 1}, func(f *failing, ctx context.Context) error {
			f.annotate(ctx, fmt.Sprint(f.calls.n()))
			return errFlaky
		})
		f.start()
		f.want(time.Hour, 0)
	})
}

var deployments = cache.Scope{Kind: appsv1.SchemeGroupVersion.WithKind("Deployment")}

// TestC7_InEachForm of the cache, and with two informers of the kind.
func TestC7_InEachForm(t *testing.T) {
	for name, watch := range map[string]func(*controller.Controller[types.NamespacedName], *cache.Cache){
		"metadata": func(c *controller.Controller[types.NamespacedName], all *cache.Cache) {
			c.Watch(source.Kind(cache.ForScope[*metav1.PartialObjectMetadata](all, deployments), handler.Self()))
		},
		"unstructured": func(c *controller.Controller[types.NamespacedName], all *cache.Cache) {
			c.Watch(source.Kind(cache.ForScope[*unstructured.Unstructured](all, deployments), handler.Self()))
		},
		"decoded": func(c *controller.Controller[types.NamespacedName], all *cache.Cache) {
			c.Watch(source.Kind(cache.ForScope[*appsv1.Deployment](all, cache.Scope{Storage: cache.Decoded}), handler.Self()))
		},
		"two": func(c *controller.Controller[types.NamespacedName], all *cache.Cache) {
			c.Watch(source.Kind(cache.For[*appsv1.Deployment](all), handler.Self()))
			c.Watch(source.Kind(cache.ForScope[*metav1.PartialObjectMetadata](all, deployments), handler.Self()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // a correction, after an own event
				f := watching(t, controller.Options{}, watch, func(f *failing, ctx context.Context) error {
					if f.calls.n() == 3 {
						f.correct(5)
					}
					ok(t, unlocked["ApplyStatus"](ctx, f.deploys, f.key, 1))
					return errFlaky
				})
				f.start()
				f.want(19*time.Second, 0, lag, lag+10*time.Second, lag+11*time.Second)
			})
			synctest.Test(t, func(t *testing.T) { // own writes
				f := watching(t, controller.Options{}, watch, func(f *failing, ctx context.Context) error {
					ok(t, unlocked["ApplyStatus"](ctx, f.deploys, f.key, int32(f.calls.n())))
					return errFlaky
				})
				f.start()
				f.want(35*time.Second, unproven...)
			})
		})
	}
}

// TestC13_NoOpsAmongChanges: another client changes the object all the time, and the answers to the
// key's no-ops have the versions of events that are still to come. A change is delayed for a second
// at most.
func TestC13_NoOpsAmongChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines testkit.Buffer
		f := newFailing(t, controller.Options{Logger: slog.New(slog.NewTextHandler(&lines, nil))}, func(f *failing, ctx context.Context) error {
			return unlocked["PatchStatus, merge"](ctx, f.deploys, f.key, 1)
		})
		f.start()
		f.api.Lag(100 * time.Millisecond)
		for i := range int64(500) {
			time.Sleep(80 * time.Millisecond)
			f.correct(10 + i)
		}
		at := f.after(2 * time.Second)
		for n := range at[1:] {
			testkit.AtMost(t, at[n+1]-at[n], time.Second, "Reconcile", n+1)
		}
		testkit.Contains(t, lines.String(), `cause="perhaps its own write: patch deployments.apps/status default/a"`)
	})
}

// TestC13_UnlockedWritesSpin: their keys are slowed down, too.
func TestC13_UnlockedWritesSpin(t *testing.T) {
	for verb, write := range unlocked {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFailing(t, controller.Options{}, func(f *failing, ctx context.Context) error {
					return write(ctx, f.deploys, f.key, int32(f.calls.n()))
				})
				f.start()
				f.api.Lag(8 * time.Millisecond)
				if at := f.after(15 * time.Second); len(at) < 110 || len(at) > 130 {
					t.Errorf("%d Reconciles in 15 s", len(at))
				}
			})
		})
	}
}

// TestC12_StatusWritesHideNothing: a status write does not change the generation, whether it is
// answered or in flight.
func TestC12_StatusWritesHideNothing(t *testing.T) {
	for _, verb := range []string{"PatchStatus, merge", "ApplyStatus"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFailing(t, controller.Options{MaxInterrupts: 3}, func(f *failing, ctx context.Context) error {
					if f.calls.n() == 1 {
						f.correct(5)
						ok(t, unlocked[verb](ctx, f.deploys, f.key, 1))
					}
					return minute(nil, ctx)
				})
				ok(t, unlocked[verb](context.Background(), f.deploys, f.key, 1))
				f.start()
				f.want(time.Hour, 0, lag)
				testkit.Equal(t, fmt.Sprint(f.outcomes.list()), "[interrupted success]", "ended as")
			})
		})
	}
}
