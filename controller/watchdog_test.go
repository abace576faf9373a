// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// slows records the reports and their times.
type slows struct {
	began time.Time
	mu    sync.Mutex
	all   []hook.Slow
	at    []time.Duration
}

func (s *slows) hooks() *hook.Hook {
	return hook.On(func(slow *hook.Slow) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all, s.at = append(s.all, *slow), append(s.at, time.Since(s.began))
	})
}

func (s *slows) take() ([]hook.Slow, []time.Duration) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	all, at := s.all, s.at
	s.all, s.at = nil, nil
	return all, at
}

// hang is a function that the reported stack must show.
func hang(d time.Duration) { time.Sleep(d) }

// TestC9_ASlowReconcileIsReportedOnceWithItsStack after a minute, by the log and the hook.
func TestC9_ASlowReconcileIsReportedOnceWithItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines testkit.Buffer
		s := &slows{began: time.Now()}
		c := newController(func(_ context.Context, key string) (controller.Result, error) {
			if key == "slow" {
				hang(10 * time.Minute)
			}
			time.Sleep(59 * time.Second)
			return controller.Result{}, nil
		}, controller.Options{Workers: 3, Hook: s.hooks(), Logger: slog.New(slog.NewTextHandler(&lines, nil))})
		c.Watch(newSource("keys", "quick", "slow", "other"))
		stop := start(t, c)
		time.Sleep(time.Minute - time.Nanosecond)
		if all, _ := s.take(); all != nil {
			t.Errorf("too early: %+v", all)
		}
		time.Sleep(time.Nanosecond)
		all, _ := s.take()
		if len(all) != 1 {
			t.Fatalf("reported: %+v", all)
		}
		r := c.Snapshot().Running
		if len(r) != 1 || !r[0].Slow || r[0].Key != "slow" {
			t.Fatalf("running: %+v", r)
		}
		got := all[0]
		if got.Controller != "test" || got.Key != "slow" || got.ReconcileID != r[0].ReconcileID || got.Took != time.Minute {
			t.Errorf("reported: %+v", got)
		}
		if !strings.HasPrefix(got.Stack, "goroutine ") || !strings.Contains(got.Stack, "controller_test.hang(") || strings.Count(got.Stack, "goroutine ") > 2 {
			t.Errorf("the stack is\n%s", got.Stack)
		}
		time.Sleep(8 * time.Minute)
		c.Queue().Add("quick")
		time.Sleep(time.Hour)
		if all, _ := s.take(); all != nil {
			t.Errorf("reported again: %+v", all)
		}
		text := lines.String()
		testkit.Count(t, text, "reconcile is slow", 1)
		for _, want := range []string{"level=WARN", "controller=test", "key=slow", "reconcileID=" + got.ReconcileID, "took=1m0s", "controller_test.hang("} {
			testkit.Contains(t, text, want, "the log")
		}
		ok(t, stop())
	})
}

// TestC9_TheNextOneIsReportedToo: the limit applies to each Reconcile of each worker.
func TestC9_TheNextOneIsReportedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slows{began: time.Now()}
		c := newController(func(_ context.Context, key string) (controller.Result, error) {
			var wait time.Duration
			_, _ = fmt.Sscan(key, &wait)
			hang(wait * time.Second)
			return controller.Result{}, nil
		}, controller.Options{Workers: 2, SlowAfter: 10 * time.Second, Hook: s.hooks()})
		c.Watch(newSource("keys", "7", "15", "25", "10", "3"))
		stop := start(t, c)
		time.Sleep(time.Minute)
		all, at := s.take() // 7 and 15 begin at 0, 25 at 7, 10 at 15, 3 at 25
		if fmt.Sprint(at) != "[10s 17s 25s]" && fmt.Sprint(at) != "[10s 17s]" || all[0].Key != "15" || all[1].Key != "25" {
			t.Errorf("reported at %v: %+v", at, all)
		}
		ok(t, stop())
	})
}

// TestC9_TheContextEndsAtTheDeadline with a cause that names it. That is a failure with its own
// retry reason, and is reported with the stack.
func TestC9_TheContextEndsAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended outcomes
		var causes []error
		s := &slows{began: time.Now()}
		hooks := hook.Join(s.hooks(), ended.hooks())
		var reasons []workqueue.Reason
		var c *controller.Controller[string]
		c = newController(func(ctx context.Context, key string) (controller.Result, error) {
			look, _ := c.Queue().Lookup(key)
			reasons = append(reasons, look.Reasons...)
			if len(causes) == 2 {
				return controller.Result{}, nil
			}
			if at, ok := ctx.Deadline(); !ok || time.Until(at) != 20*time.Second {
				t.Errorf("the deadline is %v, %v", at, ok)
			}
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return controller.Result{}, fmt.Errorf("a request: %w", ctx.Err())
		}, controller.Options{Deadline: 20 * time.Second, Hook: hooks})
		src := newSource("keys", "a")
		c.Watch(src)
		stop := start(t, c)
		time.Sleep(time.Hour)
		synctest.Wait()
		for _, cause := range causes {
			testkit.ErrorIs(t, cause, context.DeadlineExceeded)
			testkit.Equal(t, cause.Error(), "the Reconcile exceeded its deadline of 20s")
		}
		testkit.Equal(t, fmt.Sprint(ended.list()), "[error error success]", "ended as")
		var events []string
		for _, r := range reasons[1:] {
			events = append(events, r.Source+" "+r.Event)
		}
		testkit.Equal(t, fmt.Sprint(events), "[queue RetryDeadline queue RetryDeadline]", "the reasons of the retries")
		all, at := s.take()
		if fmt.Sprint(at) != "[20s 40.005s]" {
			t.Fatalf("reported at %v", at)
		}
		for _, r := range all {
			testkit.Equal(t, r.Took, 20*time.Second, "reported")
			testkit.Contains(t, r.Stack, "TestC9_TheContextEndsAtTheDeadline", "reported")
		}
		ok(t, stop())
	})
}

// TestC9_WhatIgnoresItsContext is reported once, at the earlier limit. Nothing is lost, and a stop
// waits for it.
func TestC9_WhatIgnoresItsContext(t *testing.T) {
	for name, test := range map[string]struct {
		slowAfter time.Duration
		reported  string
	}{
		"slow first": {10 * time.Second, "[10s]"}, "the deadline first": {time.Minute, "[30s]"}, "not reported": {-1, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ended outcomes
				s := &slows{began: time.Now()}
				hooks := hook.Join(s.hooks(), ended.hooks())
				var over time.Duration
				c := newController(func(ctx context.Context, _ string) (controller.Result, error) {
					context.AfterFunc(ctx, func() { over = time.Since(s.began) })
					hang(2 * time.Minute)
					return controller.Result{}, nil
				}, controller.Options{Deadline: 30 * time.Second, SlowAfter: test.slowAfter, Hook: hooks})
				c.Watch(newSource("keys", "a"))
				stop := start(t, c)
				time.Sleep(110 * time.Second)
				ok(t, stop())
				if _, at := s.take(); fmt.Sprint(at) != test.reported || over != 30*time.Second {
					t.Errorf("reported at %v, want %s; the context ended after %s", at, test.reported, over)
				}
				testkit.Equal(t, fmt.Sprint(ended.list()), "[success]")
				testkit.Equal(t, time.Since(s.began), 2*time.Minute)
			})
		})
	}
}

// TestC9_NoDeadlineUnlessAskedFor: the default is none.
func TestC9_NoDeadlineUnlessAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(func(ctx context.Context, _ string) (controller.Result, error) {
			time.Sleep(24 * time.Hour)
			return controller.Result{}, ctx.Err()
		}, controller.Options{SlowAfter: -1})
		c.Watch(newSource("keys", "a"))
		stop := start(t, c)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if got := c.Snapshot(); got.Keys != nil || got.Progress.LastCompleted.IsZero() {
			t.Errorf("got %+v", got)
		}
		ok(t, stop())
	})
}

func TestCutStack(t *testing.T) {
	long := "goroutine 12 [sleep]:\n" + strings.Repeat("f()\n", 10000)
	stacks := "goroutine 1 [running]:\nmain()\n\n" + long + "\ngoroutine 123 [sleep]:\ng()\n"
	testkit.Equal(t, controller.CutStack(stacks, "goroutine 1"), "goroutine 1 [running]:\nmain()", "the first")
	testkit.Equal(t, controller.CutStack(stacks, "goroutine 123"), "goroutine 123 [sleep]:\ng()", "the last")
	if got := controller.CutStack(stacks, "goroutine 12"); len(got) > 17<<10 || !strings.HasPrefix(got, "goroutine 12 [sleep]:\nf()\n") || !strings.HasSuffix(got, "left out") {
		t.Errorf("a long one: %d bytes", len(got))
	}
	if got := controller.CutStack(stacks, "goroutine 2"); !strings.HasPrefix(got, "not found") {
		t.Errorf("one that is not there: %q", got)
	}
}

// TestProgress: a lack of progress is readable, and a failure only for callers of CheckProgress.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := warm(t, func(_ context.Context, key string) (controller.Result, error) {
			if strings.HasPrefix(key, "stuck") {
				<-release
			}
			return controller.Result{}, nil
		})
		alive := func() error { return c.Report().CheckProgress(10 * time.Minute) }
		want := func(ready, running int, stalled time.Duration) controller.Progress {
			t.Helper()
			synctest.Wait()
			p := c.Snapshot().Progress
			testkit.Equal(t, p.Ready, ready)
			testkit.Equal(t, p.Running, running)
			testkit.Equal(t, p.Stalled, stalled)
			err := alive()
			testkit.Equal(t, err != nil, stalled >= 10*time.Minute, stalled, err)
			return p
		}
		c.Queue().Add("before")
		time.Sleep(time.Hour)
		testkit.Equal(t, want(1, 0, 0).LastCompleted.IsZero(), true) // it does not lead
		end := c.lead(t, time.Hour)
		want(0, 0, 0)
		completed := time.Now()
		time.Sleep(time.Hour)
		c.Queue().Add("stuck 1")
		time.Sleep(time.Minute)
		c.Queue().Add("stuck 2")
		time.Sleep(time.Hour)
		if p := want(0, 2, 0); !p.LastCompleted.Equal(completed) || p.Longest != 61*time.Minute || p.LongestKey != "stuck 1" {
			t.Errorf("got %+v", p)
		}
		c.Queue().Add("a")
		want(1, 2, time.Hour) // both have been busy for so long
		err := alive()
		testkit.ErrorContains(t, err, `controller "test"`)
		testkit.ErrorContains(t, err, "stuck 1")
		testkit.ErrorContains(t, err, "1h0m0s")
		c.Pause()
		want(1, 2, 0) // the workers are not the cause
		c.Resume()
		want(1, 2, 0)
		time.Sleep(9 * time.Minute)
		want(1, 2, 9*time.Minute)
		release <- struct{}{}
		want(0, 1, 0)
		testkit.Equal(t, time.Until(c.Snapshot().Progress.LastCompleted), 0)
		close(release)
		end()
		c.Queue().Add("after")
		time.Sleep(time.Hour)
		want(1, 0, 0)
		testkit.NotEqual(t, c.Report().CheckProgress(0), nil, "a limit of 0 passes")
		ok(t, c.cool())
	})
}

// TestC9_FewLinesOfManySlowReconciles: the hook gets each.
func TestC9_FewLinesOfManySlowReconciles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out testkit.Buffer
		s := &slows{began: time.Now()}
		c := newController(func(context.Context, string) (controller.Result, error) {
			hang(2 * time.Second)
			return controller.Result{RequeueAfter: time.Nanosecond}, nil
		}, controller.Options{SlowAfter: time.Second, Hook: s.hooks(), Logger: slog.New(slog.NewTextHandler(&out, nil))})
		c.Watch(newSource("keys", "a"))
		stop := start(t, c)
		time.Sleep(2 * time.Minute)
		ok(t, stop())
		all, _ := s.take()
		if n := strings.Count(out.String(), "reconcile is slow"); len(all) != 60 || n < 20 || n > 23 {
			t.Errorf("the hook was told of %d, the log of %d", len(all), n)
		}
		testkit.Contains(t, out.String(), "unlogged=4", "the log does not say how many lines it lacks")
	})
}

// TestC9_ASlowReconcileAmongManyCauses: a controller whose keys fail for hundreds of different
// causes still logs each slow Reconcile.
func TestC9_ASlowReconcileAmongManyCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out testkit.Buffer
		n := 0
		c := newController(func(context.Context, string) (controller.Result, error) {
			if n++; n < 500 {
				return controller.Result{}, controller.RetryAfter(errors.New("bad"+strings.Repeat("x", n)), time.Millisecond)
			}
			hang(2 * time.Second)
			return controller.Result{}, nil
		}, controller.Options{SlowAfter: time.Second, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		c.Watch(newSource("keys", "a"))
		stop := start(t, c)
		time.Sleep(time.Minute)
		ok(t, stop())
		testkit.Count(t, out.String(), "reconcile is slow", 1)
	})
}

// TestProgress_JustReady: a key that becomes ready after an idle time does not count as stalled
// before a worker takes it.
func TestProgress_JustReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(func(context.Context, string) (controller.Result, error) { return controller.Result{}, nil }, controller.Options{Logger: silent})
		stop := start(t, c)
		for range 100 {
			time.Sleep(time.Hour)
			c.Queue().Add("a")
			testkit.Equal(t, c.Report().Progress.Stalled, 0, "stalled for")
			synctest.Wait()
		}
		ok(t, stop())
	})
}
