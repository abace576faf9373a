// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/workqueue"
)

func TestC8_NoNewKeyIsTakenAndARunningOneFinishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &calls{began: time.Now()}
		var seenOutcomes outcomes
		c := newController(func(ctx context.Context, key string) (controller.Result, error) {
			seen.note(key)
			time.Sleep(20 * time.Second)
			return controller.Result{}, ctx.Err()
		}, controller.Options{Hook: seenOutcomes.hooks()})
		c.Watch(newSource("keys", "a", "b"))
		stop := start(t, c)
		time.Sleep(time.Second)
		ok(t, stop())
		testkit.Equal(t, time.Since(seen.began), 20*time.Second, "Run returned after")
		testkit.SlicesEqual(t, seen.keys, []string{"a"})
		testkit.SlicesEqual(t, seenOutcomes.list(), []hook.Outcome{hook.Succeeded})
	})
}

func TestC8_AfterTheGraceTheContextEndsWithACause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var seenOutcomes outcomes
		var lines testkit.Buffer
		var cause error
		c := newController(func(ctx context.Context, _ string) (controller.Result, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return controller.Result{}, errFlaky // for example a request that was cut off
		}, controller.Options{Hook: seenOutcomes.hooks(), Grace: 10 * time.Second, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
		c.Watch(newSource("keys", "a"))
		stop := start(t, c)
		time.Sleep(time.Second)
		ok(t, stop())
		testkit.Equal(t, time.Since(began), 11*time.Second, "Run returned after")
		testkit.ErrorIs(t, cause, context.Canceled)
		testkit.ErrorContains(t, cause, "the grace time of 10s is over")
		testkit.SlicesEqual(t, seenOutcomes.list(), []hook.Outcome{hook.Interrupted}, "the hook saw")
		testkit.NotContains(t, lines.String(), "ERROR")
		testkit.Contains(t, lines.String(), "reconcile interrupted")
	})
}

func TestGraceDefaultsTo25Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := newController(func(ctx context.Context, _ string) (controller.Result, error) {
			<-ctx.Done()
			return controller.Result{}, ctx.Err()
		}, controller.Options{})
		c.Watch(newSource("keys", "a"))
		stop := start(t, c)
		synctest.Wait()
		ok(t, stop())
		testkit.Equal(t, time.Since(began), 25*time.Second, "Run returned after")
	})
}

// led is a warm controller with its queue's settlings.
type led struct {
	*controller.Controller[string]
	settled chan hook.QueueSettled
	cool    func() error
}

func warm(t *testing.T, f controller.Func[string], initial ...string) *led {
	t.Helper()
	l := &led{settled: make(chan hook.QueueSettled, 100)}
	l.Controller = controller.NewWithQueue("test", f, controller.Options{Logger: silent, Workers: 2}, workqueue.Options[string]{
		Hook: hook.On(func(s *hook.QueueSettled) { l.settled <- *s }),
	})
	l.Watch(newSource("keys", initial...))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Warm(ctx) }()
	l.cool = func() error {
		cancel()
		return <-done
	}
	return l
}

// lead leads for a term. end ends it and waits until Lead has returned.
func (l *led) lead(t *testing.T, grace time.Duration) (end func()) {
	t.Helper()
	take, stop := context.WithCancel(t.Context())
	work, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Lead(take, work) }()
	return func() {
		stop()
		timer := time.AfterFunc(grace, cancel)
		ok(t, <-done)
		timer.Stop()
		cancel()
	}
}

func TestC8_AnInterruptedKeyIsDueInTheNextTerm(t *testing.T) {
	for name, err := range map[string]error{"error": errFlaky, "terminal": controller.Terminal(errFlaky), "cancelled": context.Canceled} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				term := 1
				c := warm(t, func(ctx context.Context, _ string) (controller.Result, error) {
					if term == 1 {
						<-ctx.Done()
						return controller.Result{}, err
					}
					return controller.Result{}, nil
				}, "a")
				end := c.lead(t, time.Second)
				time.Sleep(time.Second)
				end()
				if s := <-c.settled; s.Outcome != hook.QueueRelease || s.Attempt != 1 {
					t.Errorf("in the first term, settled as %+v", s)
				}
				term = 2
				end = c.lead(t, time.Second)
				synctest.Wait()
				if s := <-c.settled; s.Outcome != hook.QueueDone || s.Attempt != 1 {
					t.Errorf("in the second term, settled as %+v", s)
				}
				end()
				ok(t, c.cool())
			})
		})
	}
}

func TestC8_APanicStaysAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := warm(t, func(ctx context.Context, _ string) (controller.Result, error) {
			<-ctx.Done()
			panic("boom")
		}, "a")
		end := c.lead(t, time.Second)
		synctest.Wait()
		end()
		settled := <-c.settled
		testkit.Equal(t, settled.Outcome, hook.QueueRetry, "settled as", settled)
		ok(t, c.cool())
	})
}

func TestC8_SuccessAfterTheGraceIsASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := warm(t, func(ctx context.Context, _ string) (controller.Result, error) {
			<-ctx.Done()
			return controller.Result{}, nil
		}, "a")
		end := c.lead(t, time.Second)
		synctest.Wait()
		end()
		settled := <-c.settled
		testkit.Equal(t, settled.Outcome, hook.QueueDone, "settled as", settled)
		ok(t, c.cool())
	})
}

// TestC8_NothingStartsOnADeadContext: a lost term ends both contexts in any order.
func TestC8_NothingStartsOnADeadContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := warm(t, func(context.Context, string) (controller.Result, error) {
			t.Error("Reconcile was called")
			return controller.Result{}, nil
		})
		work, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Lead(t.Context(), work) }()
		synctest.Wait()
		cancel()
		c.Queue().AddAll([]string{"a", "b"}, workqueue.AddOptions{})
		ok(t, <-done)
		if got := c.TheQueue().Len(); got.Ready != 2 || got.Held != 0 {
			t.Errorf("the queue has %+v, want both keys ready", got)
		}
		ok(t, c.cool())
	})
}

func TestLeadInTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &calls{began: time.Now()}
		c := warm(t, func(_ context.Context, key string) (controller.Result, error) {
			seen.note(key)
			return controller.Result{}, nil
		}, "a")
		time.Sleep(time.Second)
		c.lead(t, time.Second)()
		end := c.lead(t, time.Second)
		time.Sleep(time.Second)
		end()
		c.Queue().Add("b") // waits for the next term
		time.Sleep(time.Second)
		testkit.Equal(t, len(seen.keys), 1, "Reconciles before the second term")
		end = c.lead(t, time.Second)
		time.Sleep(time.Second)
		end()
		ok(t, c.cool())
		testkit.SlicesEqual(t, seen.keys, []string{"a", "b"}, "reconciled")
	})
}

func TestRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(func(context.Context, string) (controller.Result, error) { return controller.Result{}, nil }, controller.Options{})
		stop := start(t, c)
		synctest.Wait()
		for range 2 {
			want := `controller "test": it has run before; make a new one`
			testkit.Equal(t, fmt.Sprint(c.Run(t.Context())), want, "a second Run returned")
		}
		ok(t, stop())
	})
}

func TestStopBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(func(context.Context, string) (controller.Result, error) {
			t.Error("Reconcile was called")
			return controller.Result{}, nil
		}, controller.Options{})
		s := newSource("keys", "a")
		s.hold = make(chan struct{})
		c.Watch(s)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errFlaky) // any cause
		ok(t, c.Run(ctx))
	})
}

func TestWarmStopsForAnyCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(func(context.Context, string) (controller.Result, error) { return controller.Result{}, nil }, controller.Options{})
		c.Watch(newSource("keys"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ok(t, c.Warm(ctx))
	})
}

// TestC9_AContextEndsWithItsReconcile: a context with a deadline, or that may be interrupted, does
// not outlive its Reconcile.
func TestC9_AContextEndsWithItsReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last context.Context
		c := newController(func(ctx context.Context, _ string) (controller.Result, error) {
			last = ctx
			return controller.Result{}, nil
		}, controller.Options{Deadline: time.Hour})
		c.Queue().Add("a")
		stop := start(t, c)
		synctest.Wait()
		testkit.NotEqual(t, last.Err(), nil, "the context goes on")
		ok(t, stop())
	})
}

// TestC8_TheLogNamesWhatDoesNotStop with its stack, a second after its context has ended.
func TestC8_TheLogNamesWhatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out testkit.Buffer
		c := newController(func(_ context.Context, key string) (controller.Result, error) {
			if key == "stubborn" {
				time.Sleep(time.Minute)
			}
			return controller.Result{}, nil
		}, controller.Options{Workers: 2, Grace: 10 * time.Second, SlowAfter: -1, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		c.Watch(newSource("keys", "stubborn", "good"))
		stop := start(t, c)
		time.Sleep(time.Second)
		ok(t, stop())
		const want = `level=WARN msg="reconcile ignores the end of its context" controller=test key=stubborn`
		testkit.Count(t, out.String(), "ignores the end", 1)
		testkit.Contains(t, out.String(), want)
		testkit.Contains(t, out.String(), "stop_test.go")
	})
}
