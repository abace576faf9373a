// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestHooksFromStartToStop: hooks see the start and the stop, the figures in between, and
// Reconciles over their deadline.
func TestHooksFromStartToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []string
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprintf(format, args...))
		}
		var stats func() hook.ControllerStats
		var of any
		c := newController(func(ctx context.Context, key string) (controller.Result, error) {
			if key == "slow" {
				<-ctx.Done()
			}
			return controller.Result{}, nil
		}, controller.Options{
			Workers: 3, Deadline: 20 * time.Second, Logger: silent,
			Hook: hook.Join(
				hook.On(func(e *hook.ControllerStarted) { of, stats = e.Of, e.Stats; note("%s starts", e.Controller) }),
				hook.On(func(e *hook.ControllerStopped) { note("%s stops: %t", e.Controller, e.Of == of) }),
				hook.On(func(r *hook.Reconciled) { note("%s, timed out: %t", r.Outcome, r.TimedOut) }),
				hook.On(func(e *hook.QueueOpened) { note("queue %s opens", e.Queue) }),
				hook.On(func(e *hook.QueueClosed) { note("queue %s closes", e.Queue) }),
				hook.On(func(r *hook.SourceStarted) { note("%s of %s starts", r.Source, r.Controller) }),
				hook.On(func(r *hook.SourceStopped) { note("%s of %s stops", r.Source, r.Controller) })),
		})
		keys := newSource("keys", "quick", "slow")
		c.Watch(keys)
		if told != nil {
			t.Errorf("before the start it is told %q", told)
		}
		stop := start(t, c)
		time.Sleep(time.Second)
		synctest.Wait()
		if s := stats(); s.Workers != 3 || s.Active != 1 {
			t.Errorf("figures are %+v, want 3 workers, 1 active", s)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if s := stats(); s.Workers != 3 || s.Active != 0 {
			t.Errorf("figures are %+v, want 3 workers, none active", s)
		}
		ok(t, c.Unwatch(t.Context(), keys))
		ok(t, stop())
		name := c.Name()
		want := []string{
			"queue " + name + " opens", name + " starts", "Fake(keys) of " + name + " starts", "success, timed out: false", "success, timed out: true",
			"Fake(keys) of " + name + " stops", "queue " + name + " closes", name + " stops: true",
		}
		testkit.SlicesEqual(t, told, want)
	})
}

// TestDefault_AfterWarmHasNoEffect: a manager may add a controller again that still stops. There is
// no data race with its workers. Run it with -race.
func TestDefault_AfterWarmHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		c := newController(func(context.Context, string) (controller.Result, error) {
			time.Sleep(time.Second)
			return controller.Result{}, nil
		}, controller.Options{Logger: silent})
		c.Watch(newSource("keys", "a", "b"))
		stop := start(t, c)
		time.Sleep(time.Millisecond)
		c.Default(controller.Options{Hook: hook.On(func(*hook.Reconciled) { told++ })})
		time.Sleep(time.Minute)
		ok(t, stop())
		testkit.Equal(t, told, 0, "told of Reconciles")
	})
}

// TestHooks_FailingKeys: a key counts as failing from the end of a failed Reconcile to the end of
// the next one, also if it is not retried. On a standby no key does, and the reasons stay.
func TestHooks_FailingKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stats func() hook.ControllerStats
		var mu sync.Mutex
		runs := map[string]int{}
		c := controller.New("test", controller.Func[string](func(_ context.Context, key string) (controller.Result, error) {
			mu.Lock()
			runs[key]++
			run := runs[key]
			mu.Unlock()
			switch {
			case key == "terminal":
				return controller.Result{}, controller.Terminal(errFlaky)
			case key == "panics" && run < 3:
				panic("boom")
			case key == "fails" && run == 2:
				time.Sleep(time.Hour) // it has not succeeded yet
			}
			if key != "good" && run == 1 {
				return controller.Result{}, errFlaky
			}
			return controller.Result{}, nil
		}), controller.Options{Logger: silent, Workers: 2, Hook: hook.On(func(e *hook.ControllerStarted) { stats = e.Stats })})
		c.Watch(newSource("keys", "good", "fails", "panics", "terminal"))
		expect := func(when string, want map[string]int) {
			t.Helper()
			synctest.Wait()
			testkit.Equal(t, fmt.Sprint(stats().Failing), fmt.Sprint(want), when, "keys fail")
		}
		stop := start(t, c)
		expect("after the first Reconciles", map[string]int{"Error": 1, "Panicked": 1, "Terminal": 1})
		time.Sleep(time.Minute)
		expect("while one is tried again, and another has succeeded at its third attempt", map[string]int{"Error": 1, "Panicked": 0, "Terminal": 1})
		time.Sleep(2 * time.Hour)
		expect("in the end", map[string]int{"Error": 0, "Panicked": 0, "Terminal": 1})
		ok(t, stop())
		expect("without a leader", map[string]int{"Error": 0, "Panicked": 0, "Terminal": 0})
	})
}
