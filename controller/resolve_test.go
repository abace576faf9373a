// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// TestC6_KeysWithoutLostAnswersGoOn: an API server that does not answer delays other keys for
// seconds, not minutes.
func TestC6_KeysWithoutLostAnswersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil)
		var mu sync.Mutex
		healthy := 0
		c := controller.New("lossy", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			if strings.HasPrefix(key.Name, "healthy") {
				mu.Lock()
				defer mu.Unlock()
				healthy++
				return controller.Result{}, nil
			}
			_, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "s-"}})
			return controller.Result{RequeueAfter: time.Second}, err
		}), controller.Options{Logger: silent})
		c.Reads(r.secrets)
		r.start()
		r.api.Intercept(func(q *sim.Request) (*http.Response, error) {
			switch {
			case q.Verb == "create":
				return q.Fail(http.StatusGatewayTimeout, "no answer")
			case q.Verb == "list" && q.Resource.Resource == "secrets":
				return q.Hang()
			}
			return nil, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		add := func(format string, n int) {
			for i := range n {
				c.Queue().Add(types.NamespacedName{Namespace: "default", Name: fmt.Sprintf(format, i)})
			}
		}
		add("k%d", 20)
		time.Sleep(3 * time.Second)
		add("healthy%d", 100)
		time.Sleep(5 * time.Second)
		mu.Lock()
		testkit.Equal(t, healthy, 100, "healthy keys reconciled in 5 s")
		mu.Unlock()
		time.Sleep(time.Minute)
		testkit.AtMost(t, r.api.Count("list", sim.Secrets), 18) // 2 s each, and 2 s between them
		cancel()
		ok(t, <-done)
	})
}

// TestC6_AsksAgainAfterARecovery: an unanswered question is repeated when an informer recovers, not
// seconds later.
func TestC6_AsksAgainAfterARecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil,
			func(r *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
				r.api.Intercept(func(q *sim.Request) (*http.Response, error) {
					switch {
					case q.Verb == "create":
						return q.Fail(http.StatusGatewayTimeout, "no answer")
					case q.Verb == "list" && q.Resource.Resource == "secrets":
						return q.Hang()
					}
					return nil, nil
				})
				_, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "s-"}})
				return controller.Result{}, err
			}, idle)
		r.start()
		r.after(3100 * time.Millisecond) // the question hung from 1 s to 3 s
		r.outage()
		r.after(100 * time.Millisecond)
		r.api.Intercept(nil)
		testkit.Len(t, r.after(1500*time.Millisecond), 2, "reconciled at")
	})
}

// idle is a Reconcile that does nothing.
func idle(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
	return controller.Result{}, nil
}

// TestC6_WaitsAgainBesideARequestUnderWay: a request in flight does not make a key forget the
// writes that it waits for again after an outage.
func TestC6_WaitsAgainBesideARequestUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left sync.WaitGroup
		create := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			defer r.outage()
			return createSecret(r, ctx, key)
		}
		leave := func(r *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			held := make(chan struct{})
			r.api.Intercept(func(q *sim.Request) (*http.Response, error) {
				switch {
				case q.Verb == "create":
					close(held)
					time.Sleep(10 * time.Second)
					return q.Fail(http.StatusConflict, "no")
				case q.Resource.Resource == "secrets" && (q.Verb == "list" || q.Verb == "watch"):
					return q.Refuse()
				}
				return nil, nil
			})
			left.Go(func() { _, _ = r.secret().Create(ctx, &corev1.Secret{ObjectMeta: named("other")}) })
			<-held
			return controller.Result{RequeueAfter: time.Second}, nil
		}
		third := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			if _, err := r.secrets.Get(ctx, key); apierrors.IsNotFound(err) && controller.Stale(ctx) == nil {
				t.Error("the key's own write is not shown, and Stale returns nil")
			}
			return controller.Result{}, nil
		}
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, create, leave, third)
		r.start()
		r.after(30500 * time.Millisecond) // the second Reconcile has run
		r.api.Lag(50 * time.Second)       // since the write
		r.api.Intercept(nil)
		testkit.Len(t, r.after(2*time.Minute), 3, "reconciled at")
		left.Wait()
	})
}

type several []error

func (several) Error() string     { return "several" }
func (s several) Unwrap() []error { return s }

type outer struct{ cause *inner }

func (o outer) Error() string { return "outer" }
func (o outer) Unwrap() error { return o.cause }

type inner struct{ text string }

func (i *inner) Error() string { return i.text }

// TestC5_ErrorsWithStrangeInsides: a nil among joined errors or an inner error that panics does not
// end the process.
func TestC5_ErrorsWithStrangeInsides(t *testing.T) {
	for _, err := range []error{several{nil, errors.New("x")}, outer{}, several{outer{}}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
				return controller.Result{}, err
			})
			r.start()
			if at := r.after(time.Second); len(at) != 2 || r.ends[0] != hook.Failed {
				t.Errorf("%T: reconciled at %v, ended as %v", err, at, r.ends)
			}
		})
	}
}

// TestC6_AWriteMayBeCarriedOutLater: while a write without an answer may still be carried out,
// Stale names it.
func TestC6_AWriteMayBeCarriedOutLater(t *testing.T) {
	labeled := []byte(`{"metadata":{"labels":{"written":"true"}}}`)
	for _, c := range []struct {
		name    string
		write   func(r *rig, ctx context.Context, was *corev1.Secret) error
		decided [2]bool       // not carried out; carried out
		bound   time.Duration // ReadYourWrites
	}{
		{"create", func(r *rig, ctx context.Context, _ *corev1.Secret) error {
			_, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: named("new")})
			return err
		}, [2]bool{false, true}, 30 * time.Second},
		{"generated name", func(r *rig, ctx context.Context, _ *corev1.Secret) error {
			_, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "new-"}})
			return err
		}, [2]bool{false, false}, 5 * time.Minute},
		{"update", func(r *rig, ctx context.Context, was *corev1.Secret) error {
			was.Labels = map[string]string{"written": "true"}
			_, err := r.secret().Update(ctx, was)
			return err
		}, [2]bool{false, true}, 30 * time.Second},
		{"patch", func(r *rig, ctx context.Context, was *corev1.Secret) error {
			_, err := r.secret().Patch(ctx, types.NamespacedName{Namespace: was.Namespace, Name: was.Name}, types.MergePatchType, labeled)
			return err
		}, [2]bool{false, false}, 10 * time.Second},
		{"delete", func(r *rig, ctx context.Context, was *corev1.Secret) error {
			return r.secret().Delete(ctx, types.NamespacedName{Namespace: was.Namespace, Name: was.Name})
		}, [2]bool{false, true}, 30 * time.Second},
	} {
		for i, carriedOut := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, carried out %t", c.name, carriedOut), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					lose := func(r *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
						was, err := r.secrets.Get(ctx, types.NamespacedName{Namespace: "default", Name: "was"})
						ok(t, err)
						lost := false
						r.api.Intercept(func(q *sim.Request) (*http.Response, error) {
							if lost || q.Resource.Resource != "secrets" || q.Verb == "list" || q.Verb == "watch" {
								return nil, nil
							}
							lost = true
							if carriedOut {
								resp, err := q.Forward(r.api)
								ok(t, err)
								resp.Body.Close()
							}
							return q.Fail(http.StatusGatewayTimeout, "no answer")
						})
						defer r.api.Intercept(nil)
						testkit.NotEqual(t, c.write(r, ctx, was), nil, "the answer was not lost")
						return controller.Result{RequeueAfter: time.Millisecond}, nil
					}
					heed := func(_ *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
						return controller.Result{}, controller.Stale(ctx)
					}
					r := newRig(t, controller.Options{ReadYourWrites: c.bound}, workqueue.Options[types.NamespacedName]{}, nil, lose, idle, heed, heed, heed)
					r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("was")})
					r.start()
					r.after(5 * time.Second)
					if doubt := r.stale[1]; (doubt == nil) != c.decided[i] {
						t.Errorf("Stale returned %v", doubt)
					} else if doubt != nil && !strings.Contains(doubt.Error(), "it may still be carried out") {
						t.Errorf("Stale returned %q", doubt)
					}
					r.control.Queue().Add(types.NamespacedName{Namespace: "default", Name: "a"})
					at := r.after(time.Minute)
					doubted := min(c.bound, 30*time.Second)
					switch last := len(at) - 1; {
					case c.decided[i] && len(at) != 3, !c.decided[i] && (len(at) != 4 || at[3] < doubted || at[3] > doubted+6*time.Second):
						t.Errorf("reconciled at %v, want it again after %s if the Reconcile returned Stale", at, doubted)
					case r.stale[last] != nil:
						t.Errorf("after %s, Stale returned %v", at[last], r.stale[last])
					}
				})
			})
		}
	}
}

// TestC6_AnAnswerWithoutTheObject: an answer that does not describe the object still proves that
// the write was carried out.
func TestC6_AnAnswerWithoutTheObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		write := func(r *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			emptied := false
			r.api.Intercept(func(q *sim.Request) (*http.Response, error) {
				if emptied || q.Verb != "patch" {
					return nil, nil
				}
				emptied = true
				resp, err := q.Forward(r.api)
				ok(t, err)
				resp.Body.Close()
				resp.Body, resp.ContentLength = http.NoBody, 0
				return resp, nil
			})
			defer r.api.Intercept(nil)
			if _, err := r.secret().Patch(ctx, types.NamespacedName{Namespace: "default", Name: "was"}, types.MergePatchType, []byte(`{"metadata":{"labels":{"written":"true"}}}`)); err == nil {
				t.Error("the client accepted an empty answer")
			}
			return controller.Result{RequeueAfter: time.Millisecond}, nil
		}
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, write, idle)
		r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("was")})
		r.start()
		if at := r.after(5 * time.Second); len(at) != 2 || r.stale[1] != nil {
			t.Errorf("reconciled at %v; Stale returned %v", at, r.stale)
		}
	})
}
