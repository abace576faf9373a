// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/workqueue"
)

var errFlaky = errors.New("the network is down")

func newController(f controller.Func[string], o controller.Options) *controller.Controller[string] {
	if o.Logger == nil {
		o.Logger = silent
	}
	return controller.New("test", f, o)
}

func TestC1_OneReconcilePerKeyAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		busy, most, total := map[string]bool{}, 0, 0
		c := newController(func(_ context.Context, key string) (controller.Result, error) {
			mu.Lock()
			testkit.Equal(t, busy[key], false, fmt.Sprintf("two Reconciles of %s at once", key))
			busy[key] = true
			most, total = max(most, len(busy)), total+1
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			delete(busy, key)
			mu.Unlock()
			return controller.Result{}, nil
		}, controller.Options{Workers: 8})
		c.Watch(newSource("keys", "a", "b", "c"))
		stop := start(t, c)
		time.Sleep(500 * time.Microsecond)
		for range 100 {
			c.Queue().AddAll([]string{"a", "b", "c"}, workqueue.AddOptions{})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		ok(t, stop())
		testkit.Equal(t, most, 3, "keys at once")
		testkit.Equal(t, total, 3*11) // one at the start, and one after each 10 ms with adds
	})
}

// settling is a controller whose Reconcile returns a test's results, one after another.
func settling(t *testing.T, o controller.Options, returns ...func() (controller.Result, error)) (*controller.Controller[string], *calls) {
	t.Helper()
	seen := &calls{began: time.Now()}
	c := newController(func(_ context.Context, key string) (controller.Result, error) {
		n := seen.note(key)
		if n > len(returns) {
			return controller.Result{}, nil
		}
		return returns[n-1]()
	}, o)
	c.Watch(newSource("keys", "a"))
	return c, seen
}

func fails() (controller.Result, error)    { return controller.Result{}, errFlaky }
func succeeds() (controller.Result, error) { return controller.Result{}, nil }
func after(d time.Duration) func() (controller.Result, error) {
	return func() (controller.Result, error) { return controller.Result{RequeueAfter: d}, nil }
}

func wantTimes(t *testing.T, seen *calls, want ...time.Duration) {
	t.Helper()
	seen.mu.Lock()
	defer seen.mu.Unlock()
	testkit.SlicesEqual(t, seen.at, want, "reconciled at")
}

func TestC2_BackoffDoublesAndSuccessResetsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, seen := settling(t, controller.Options{}, fails, fails, fails, succeeds, fails)
		stop := start(t, c)
		time.Sleep(time.Second)
		c.Queue().Add("a")
		time.Sleep(time.Minute)
		ok(t, stop())
		ms := time.Millisecond
		wantTimes(t, seen, 0, 5*ms, 15*ms, 35*ms, 1000*ms, 1005*ms)
	})
}

func TestC2_RequeueAfterResetsBackoffToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, seen := settling(t, controller.Options{}, fails, fails, after(time.Second), fails)
		stop := start(t, c)
		time.Sleep(time.Minute)
		ok(t, stop())
		ms := time.Millisecond
		wantTimes(t, seen, 0, 5*ms, 15*ms, 1015*ms, 1020*ms)
	})
}

func TestC2_AnErrorWithRequeueAfterWaitsForBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failsAfter := func(d time.Duration) func() (controller.Result, error) {
			return func() (controller.Result, error) { return controller.Result{RequeueAfter: d}, errFlaky }
		}
		c, seen := settling(t, controller.Options{}, failsAfter(time.Second), failsAfter(time.Millisecond), failsAfter(-time.Second))
		stop := start(t, c)
		time.Sleep(time.Minute)
		ok(t, stop())
		ms := time.Millisecond
		wantTimes(t, seen, 0, 1000*ms, 1010*ms, 1030*ms)
	})
}

// TestC2_ANamespaceThatIsBeingDeleted: nothing can be created there, so the key waits for its
// object's deletion. Beside another error, that counts.
func TestC2_ANamespaceThatIsBeingDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "a", errors.New("the namespace is being terminated"))
		refused.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		returns := func(err error) func() (controller.Result, error) {
			return func() (controller.Result, error) { return controller.Result{}, err }
		}
		var lines testkit.Buffer
		c, seen := settling(t, controller.Options{Logger: slog.New(slog.NewTextHandler(&lines, nil))},
			returns(fmt.Errorf("make it: %w", refused)), returns(errors.Join(refused, refused)), returns(refused), returns(errors.Join(refused, errFlaky)))
		stop := start(t, c)
		time.Sleep(70 * time.Second)
		c.Queue().Add("a") // an event
		time.Sleep(time.Minute)
		ok(t, stop())
		second := time.Second
		wantTimes(t, seen, 0, 30*second, 60*second, 70*second, 70*second+40*time.Millisecond)
		testkit.Count(t, lines.String(), "level=INFO msg=\"reconcile will be retried\"", 3)
		testkit.Count(t, lines.String(), "level=ERROR", 1)
	})
}

// TestC2_ANamespaceThatIsBeingDeletedIsNotGivenUp: MaxAttempts does not stop its retries.
func TestC2_ANamespaceThatIsBeingDeletedIsNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "a", errors.New("the namespace is being terminated"))
		refused.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		refuses := func() (controller.Result, error) { return controller.Result{}, refused }
		var lines testkit.Buffer
		c, seen := settling(t, controller.Options{MaxAttempts: 2, Logger: slog.New(slog.NewTextHandler(&lines, nil))}, refuses, refuses, refuses, fails)
		stop := start(t, c)
		time.Sleep(10 * time.Minute)
		ok(t, stop())
		wantTimes(t, seen, 0, 30*time.Second, time.Minute, 90*time.Second)
		testkit.Count(t, lines.String(), "level=ERROR", 1)
		testkit.Contains(t, lines.String(), "failed too often")
	})
}

// TestC3_ANegativeRequeueAfterIsDueAtOnce: it is often time.Until of a time that has passed.
func TestC3_ANegativeRequeueAfterIsDueAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seenOutcomes outcomes
		c, seen := settling(t, controller.Options{Hook: seenOutcomes.hooks()}, after(-time.Second), after(-time.Hour), succeeds)
		stop := start(t, c)
		time.Sleep(time.Minute)
		ok(t, stop())
		testkit.Equal(t, seenOutcomes.last().Err, nil)
		wantTimes(t, seen, 0, 1, 2)
	})
}

func TestC3_RequeueAfterReplacesItsOwnTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, seen := settling(t, controller.Options{}, after(10*time.Second), after(time.Minute), after(10*time.Second), succeeds)
		stop := start(t, c)
		time.Sleep(time.Second)
		c.Queue().Add("a") // the timer at 10 s is replaced by one at 61 s
		time.Sleep(65 * time.Second)
		c.Queue().Add("a") // at 66 s, before the third timer; sets no other
		time.Sleep(time.Hour)
		ok(t, stop())
		wantTimes(t, seen, 0, time.Second, 61*time.Second, 66*time.Second)
	})
}

func TestC4_TerminalErrorIsNotRetriedAndVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines testkit.Buffer
		var seenOutcomes outcomes
		invalid := func() (controller.Result, error) {
			return controller.Result{RequeueAfter: time.Second}, fmt.Errorf("site: %w", controller.Terminal(errors.New("spec.port is 0")))
		}
		c, seen := settling(t, controller.Options{Hook: seenOutcomes.hooks(), Logger: slog.New(slog.NewTextHandler(&lines, nil))}, fails, invalid)
		stop := start(t, c)
		time.Sleep(time.Hour)
		wantTimes(t, seen, 0, 5*time.Millisecond)
		if last := seenOutcomes.last(); last.Outcome != hook.FailedTerminally || !controller.IsTerminal(last.Err) || last.Controller != "test" {
			t.Errorf("the hook saw %+v", last)
		}
		if want := `level=ERROR msg="reconcile failed; not retried" controller=test key=a attempt=2 reconcileID=\w+-2 class=\w+ err="site: spec.port is 0"`; !regexp.MustCompile(want).MatchString(lines.String()) {
			t.Errorf("the log has no %s:\n%s", want, lines.String())
		}
		c.Queue().Add("a") // the next event still counts, and resets the failures
		time.Sleep(time.Second)
		ok(t, stop())
		wantTimes(t, seen, 0, 5*time.Millisecond, time.Hour)
	})
}

func TestTerminalOfNilIsNil(t *testing.T) {
	testkit.Equal(t, controller.Terminal(nil), nil)
	if err := controller.Terminal(errFlaky); !errors.Is(err, errFlaky) || err.Error() != errFlaky.Error() {
		t.Errorf("Terminal hides what it marks: %v", err)
	}
	testkit.Equal(t, controller.IsTerminal(errFlaky), false, "an ordinary error is terminal")
}

func explode() (controller.Result, error) { panic("boom") }

func TestC5_PanicIsAnErrorWithItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seenOutcomes outcomes
		c, seen := settling(t, controller.Options{Hook: seenOutcomes.hooks()}, explode)
		stop := start(t, c)
		time.Sleep(4 * time.Millisecond)
		last := seenOutcomes.last()
		var panicked *controller.PanicError
		if last.Outcome != hook.Panicked || !errors.As(last.Err, &panicked) || panicked.Error() != "panic: boom" || !strings.Contains(string(panicked.Stack), "settle_test.go") {
			t.Errorf("the hook saw %+v", last)
		}
		time.Sleep(time.Minute)
		ok(t, stop())
		wantTimes(t, seen, 0, 5*time.Millisecond)
	})
}

// TestC5_GoexitLosesNothing: for example testing.T.FailNow ends its goroutine.
func TestC5_GoexitLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seenOutcomes outcomes
		exit := func() (controller.Result, error) {
			runtime.Goexit()
			return controller.Result{}, nil
		}
		c, seen := settling(t, controller.Options{Hook: seenOutcomes.hooks()}, exit, exit, succeeds)
		stop := start(t, c)
		time.Sleep(time.Minute)
		ok(t, stop())
		wantTimes(t, seen, 0, 5*time.Millisecond, 15*time.Millisecond)
		testkit.SlicesEqual(t, seenOutcomes.list(), []hook.Outcome{hook.Panicked, hook.Panicked, hook.Succeeded}, "the hook saw")
		testkit.ErrorContains(t, seenOutcomes.all[0].Err, "runtime.Goexit")
	})
}

func TestHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seenOutcomes outcomes
		begun := 0
		hooks := hook.Join(seenOutcomes.hooks(), hook.On(func(r *hook.Reconciling) {
			begun++
			testkit.Equal(t, r.Controller, "test")
			testkit.Equal(t, len(seenOutcomes.list()), begun-1)
			r.Context = nil
		}))
		slow := func() (controller.Result, error) {
			time.Sleep(time.Second)
			return controller.Result{RequeueAfter: time.Second}, nil
		}
		c, _ := settling(t, controller.Options{Hook: hooks}, slow, fails)
		stop := start(t, c)
		time.Sleep(time.Minute)
		ok(t, stop())
		testkit.Equal(t, begun, 3)
		testkit.SlicesEqual(t, seenOutcomes.list(), []hook.Outcome{hook.RequeuedAfter, hook.Failed, hook.Succeeded})
		testkit.Equal(t, seenOutcomes.all[0].Took, time.Second, "the first took")
	})
}

// TestC5_WhateverItPanicsWith: nil, errors, runtime errors, and values that panic when printed.
func TestC5_WhateverItPanicsWith(t *testing.T) {
	var (
		none    map[string]int
		nothing any
		pointer *int
	)
	for name, test := range map[string]struct {
		panics func()
		is     func(error) bool
		says   string
	}{
		"nil":             {func() { panic(nothing) }, func(err error) bool { return errors.As(err, new(*runtime.PanicNilError)) }, "panic called with nil argument"},
		"an error":        {func() { panic(errFlaky) }, func(err error) bool { return errors.Is(err, errFlaky) }, "panic: the network is down"},
		"a runtime fault": {func() { none["a"] = 1 }, func(err error) bool { return errors.As(err, new(runtime.Error)) }, "panic: assignment to entry in nil map"},
		"a nil pointer":   {func() { _ = *pointer }, func(err error) bool { return errors.As(err, new(runtime.Error)) }, "nil pointer dereference"},
		"Terminal":        {func() { panic(controller.Terminal(errFlaky)) }, controller.IsTerminal, "panic: the network is down"},
		"a bad Stringer":  {func() { panic(badStringer{}) }, func(err error) bool { return err != nil }, "panic: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seenOutcomes outcomes
				c, seen := settling(t, controller.Options{Hook: seenOutcomes.hooks()}, func() (controller.Result, error) {
					test.panics()
					return controller.Result{}, nil
				})
				stop := start(t, c)
				time.Sleep(time.Minute)
				ok(t, stop())
				wantTimes(t, seen, 0, 5*time.Millisecond) // it is retried
				if first := seenOutcomes.all[0]; first.Outcome != hook.Panicked || !test.is(first.Err) || !strings.Contains(first.Err.Error(), test.says) {
					t.Errorf("the hook saw %+v", first)
				}
			})
		})
	}
}

type badStringer struct{}

func (badStringer) String() string { panic("no string") }

// TestC5_AnErrorThatPanics, such as a nil of an error type, counts as a panic of the Reconcile.
func TestC5_AnErrorThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var none *apierrors.StatusError
		all := &outcomes{}
		c, seen := settling(t, controller.Options{Hook: all.hooks()},
			func() (controller.Result, error) { return controller.Result{}, none },
			func() (controller.Result, error) { return controller.Result{}, controller.Terminal(none) },
			func() (controller.Result, error) { return controller.Result{}, fmt.Errorf("wrapped: %w", none) })
		c.Watch(newSource("keys", "a"))
		stop := start(t, c)
		time.Sleep(time.Minute)
		ok(t, stop())
		if len(seen.at) != 4 || slices.Contains(all.list()[:3], hook.FailedTerminally) {
			t.Errorf("%d Reconciles that ended as %v, want a retry after each", len(seen.at), all.list())
		}
		var p *controller.PanicError
		if !errors.As(all.all[0].Err, &p) || !strings.Contains(string(p.Stack), "StatusError") {
			t.Errorf("the error is %v", all.all[0].Err)
		}
	})
}
