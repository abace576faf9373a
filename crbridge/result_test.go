// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/crbridge"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// reconciles runs a controller of level b with one worker for an hour, and returns when the calls
// for the ConfigMap a began, since the first one.
func reconciles(t *testing.T, o controller.Options, f func(ctx context.Context, call int) (reconcile.Result, error)) (at []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mgr := newManager(t, crbridge.Options{})
		var first time.Time
		err := crbridge.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).WithOptions(o).
			Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
				if r.Name != "a" {
					return reconcile.Result{}, nil
				}
				if len(at) == 0 {
					first = time.Now()
				}
				at = append(at, time.Since(first))
				return f(ctx, len(at))
			}))
		testkit.NoError(t, err)
		stop := start(t, mgr)
		time.Sleep(time.Hour)
		testkit.Equal(t, stop(), nil)
	})
	return at
}

// limiter makes every retry wait for ten seconds times the number of failures.
type limiter struct{ failures map[reconcile.Request]int }

var _ workqueue.TypedRateLimiter[reconcile.Request] = limiter{}

func (l limiter) When(r reconcile.Request) time.Duration {
	l.failures[r]++
	return time.Duration(l.failures[r]) * 10 * time.Second
}

func (l limiter) Forget(r reconcile.Request) { delete(l.failures, r) }

func (l limiter) NumRequeues(r reconcile.Request) int { return l.failures[r] }

// TestResult has the specs of controller-runtime's internal/controller that describe results. Each
// name is the spec's.
func TestResult(t *testing.T) {
	failure := errors.New("expected error: reconcile")
	for name, test := range map[string]struct {
		calls []reconcile.Result // of one call after another, and then the zero Result
		errs  []error
		want  string
	}{
		"should requeue a Request if there is an error and continue processing items": {
			errs: []error{failure}, want: "[0s 10s]",
		},
		"should not requeue a Request if there is a terminal error": {
			errs: []error{reconcile.TerminalError(failure)}, want: "[0s]",
		},
		"should not reset backoff until there's a non-error result": {
			errs: []error{failure, failure, failure}, want: "[0s 10s 30s 1m0s]",
		},
		"should requeue a Request with rate limiting if the Result sets Requeue:true and continue processing items": {
			calls: []reconcile.Result{{Requeue: true}, {Requeue: true}}, want: "[0s 10s 30s]",
		},
		"should requeue a Request after a duration (but not rate-limited) if the Result sets RequeueAfter (regardless of Requeue)": {
			calls: []reconcile.Result{{RequeueAfter: time.Minute, Requeue: true}, {Requeue: true}}, want: "[0s 1m0s 1m10s]",
		},
		"should perform error behavior if error is not nil, regardless of RequeueAfter": {
			calls: []reconcile.Result{{RequeueAfter: time.Minute}}, errs: []error{failure}, want: "[0s 10s]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := limiter{map[reconcile.Request]int{}}
			at := reconciles(t, controller.Options{RateLimiter: l}, func(_ context.Context, call int) (result reconcile.Result, err error) {
				if call <= len(test.calls) {
					result = test.calls[call-1]
				}
				if call <= len(test.errs) {
					err = test.errs[call-1]
				}
				return result, err
			})
			for i := range at {
				at[i] = at[i].Round(time.Second)
			}
			testkit.Equal(t, fmt.Sprint(at), test.want, "Reconciles began at")
		})
	}
}

// The spec of controller-runtime is "should recover panic if RecoverPanic is true by default".
func TestResult_PanicIsRetried(t *testing.T) {
	at := reconciles(t, controller.Options{}, func(_ context.Context, call int) (reconcile.Result, error) {
		if call == 1 {
			panic("expected panic: reconcile")
		}
		return reconcile.Result{}, nil
	})
	testkit.Equal(t, len(at), 2, "calls of Reconcile")
}

// The name of controller-runtime's spec is "should time out if ReconciliationTimeout is set".
func TestResult_ReconciliationTimeout(t *testing.T) {
	at := reconciles(t, controller.Options{ReconciliationTimeout: time.Minute}, func(ctx context.Context, call int) (reconcile.Result, error) {
		if call == 1 {
			began := time.Now()
			<-ctx.Done()
			testkit.Equal(t, time.Since(began), time.Minute)
			testkit.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
			return reconcile.Result{}, ctx.Err()
		}
		return reconcile.Result{}, nil
	})
	if len(at) != 2 || at[1] < time.Minute {
		t.Errorf("calls began at %v, not again after the timeout", at)
	}
}

// The name of controller-runtime's spec is "should use the priority from Result when the reconciler
// requests a requeue", and those with RequeueAfter and an error. The key with the
// higher priority comes first.
func TestResult_Priority(t *testing.T) {
	for name, result := range map[string]struct {
		reconcile.Result
		err error
	}{
		"requeue":        {Result: reconcile.Result{Requeue: true}}, //nolint:staticcheck // it is tested
		"RequeueAfter":   {Result: reconcile.Result{RequeueAfter: time.Second}},
		"after an error": {err: errors.New("expected error")},
	} {
		t.Run(name, func(t *testing.T) { prefers(t, result.Result, result.err) })
	}
}

// prefers requeues a with a low priority and b with a high one, for the same moment.
func prefers(t *testing.T, result reconcile.Result, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mgr := newManager(t, crbridge.Options{})
		var order []string
		calls := map[string]int{}
		priority := map[string]int{"a": -100, "b": 100}
		builder := crbridge.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).
			WithOptions(controller.Options{RateLimiter: limiter{map[reconcile.Request]int{}}})
		wrong := builder.Complete(reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
			calls[r.Name]++
			if calls[r.Name] == 1 {
				own := result
				own.Priority = new(priority[r.Name])
				return own, err
			}
			order = append(order, r.Name)
			time.Sleep(time.Minute)
			return reconcile.Result{}, nil
		}))
		testkit.NoError(t, wrong)
		stop := start(t, mgr)
		time.Sleep(time.Hour)
		testkit.Equal(t, stop(), nil)
		if len(order) != 2 || order[0] != "b" {
			t.Errorf("after the requeue, the order was %v, not b before a", order)
		}
	})
}
