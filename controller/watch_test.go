// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// TestUnwatch: a removed source has ended, its keys are reconciled, and others go on.
func TestUnwatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &calls{began: time.Now()}
		c := newController(func(_ context.Context, key string) (controller.Result, error) {
			time.Sleep(time.Second)
			seen.note(key)
			return controller.Result{}, nil
		}, controller.Options{})
		first, second := newSource("first", "a", "b", "c"), newSource("second")
		c.Watch(first)
		c.Watch(second)
		stop := start(t, c)
		synctest.Wait()
		ok(t, c.Unwatch(t.Context(), first))
		if states := c.Snapshot().Sources; len(states) != 1 || states[0].Source != "Fake(second)" {
			t.Errorf("the sources are %v", states)
		}
		testkit.Equal(t, first.ended.Load(), true)
		testkit.Equal(t, second.ended.Load(), false)
		(<-second.queue).Queue.AddAll([]string{"d"}, workqueue.AddOptions{})
		time.Sleep(time.Minute)
		synctest.Wait()
		testkit.SlicesEqual(t, seen.keys, []string{"a", "d", "b", "c"}) // d is a change
		testkit.Equal(t, fmt.Sprint(c.Unwatch(t.Context(), first)), `controller "test": Fake(first) is not watched`, "twice")
		testkit.NotEqual(t, c.Unwatch(t.Context(), nil), nil, "nothing was unwatched")
		ok(t, stop())
		ok(t, c.Unwatch(t.Context(), second)) // it has ended with the controller
	})
}

func TestUnwatchBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(noting(&calls{}), controller.Options{})
		wrong := newSource("wrong")
		wrong.wrong = errFlaky
		c.Watch(wrong)
		ok(t, c.Unwatch(t.Context(), wrong))
		ok(t, c.Validate())
		stop := start(t, c)
		synctest.Wait()
		testkit.Equal(t, done(c.Synced()), true, "not synced")
		ok(t, stop())
	})
}

// TestUnwatchWhatTheWorkersWaitFor: they stop waiting for it.
func TestUnwatchWhatTheWorkersWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &calls{began: time.Now()}
		c := newController(noting(seen), controller.Options{})
		never := newSource("never")
		never.hold = make(chan struct{})
		c.Watch(never)
		c.Watch(newSource("well", "a"))
		stop := start(t, c)
		time.Sleep(time.Minute)
		synctest.Wait()
		wantTimes(t, seen)
		ok(t, c.Unwatch(t.Context(), never))
		synctest.Wait()
		wantTimes(t, seen, time.Minute)
		ok(t, stop())
	})
}

// stubborn is a source that takes its time to end.
type stubborn struct {
	*fakeSource
	takes time.Duration
	err   error
}

func (s stubborn) Run(ctx context.Context, to source.Sink[string]) error {
	_ = s.fakeSource.Run(ctx, to)
	time.Sleep(s.takes)
	return s.err
}

// TestUnwatchJoins: Unwatch waits for the source, as long as its context allows, and returns the
// source's error. The error does not end the controller.
func TestUnwatchJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(noting(&calls{}), controller.Options{})
		quick, slow := &stubborn{newSource("quick"), time.Second, errFlaky}, &stubborn{newSource("slow"), time.Hour, nil}
		c.Watch(quick)
		c.Watch(slow)
		stop := start(t, c)
		synctest.Wait()
		began := time.Now()
		if err := c.Unwatch(t.Context(), quick); err == nil || err.Error() != `controller "test": Fake(quick): the network is down` || time.Since(began) != time.Second {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.Unwatch(ctx, slow); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "Fake(slow) has not stopped yet") {
			t.Errorf("got %v", err)
		}
		testkit.Equal(t, time.Since(began), time.Minute+time.Second)
		ok(t, stop()) // waits for it
		testkit.Equal(t, time.Since(began), time.Hour+time.Second, "the controller returned, after a source that takes an hour,")
	})
}

// TestUnwatchInAReconcile: a controller of controllers does this.
func TestUnwatchInAReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *controller.Controller[string]
		src := newSource("keys", "a")
		unwatched := false
		c = newController(func(ctx context.Context, _ string) (controller.Result, error) {
			unwatched = true
			return controller.Result{}, c.Unwatch(ctx, src)
		}, controller.Options{})
		c.Watch(src)
		stop := start(t, c)
		synctest.Wait()
		testkit.Equal(t, unwatched, true)
		testkit.Equal(t, src.ended.Load(), true)
		ok(t, stop())
	})
}

// TestWatchLaterWhatIsWrong: no other method of an invalid source is called.
func TestWatchLaterWhatIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, src := range map[string]source.Source[string]{
			"give a handle and a handler": source.Kind[*corev1.ConfigMap, string](nil, nil),
			"panic: boom":                 unfit{newSource("unfit")},
		} {
			c := newController(noting(&calls{}), controller.Options{})
			result := make(chan error, 1)
			go func() { result <- c.Run(t.Context()) }()
			synctest.Wait()
			c.Watch(src)
			testkit.ErrorContains(t, <-result, want, "Run returned")
		}
	})
}

// unfit is a source that fails the test if it is used.
type unfit struct{ *fakeSource }

func (unfit) Validate() error                                { panic("boom") }
func (unfit) Run(context.Context, source.Sink[string]) error { panic("asked for more") }

// TestASourceThatFailsLaterEndsTheController, with an error that names it.
func TestASourceThatFailsLaterEndsTheController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(noting(&calls{}), controller.Options{})
		src := newSource("keys")
		src.fails = make(chan error)
		c.Watch(src)
		result := make(chan error, 1)
		go func() { result <- c.Run(t.Context()) }()
		time.Sleep(time.Hour)
		src.fails <- errFlaky
		testkit.Equal(t, fmt.Sprint(<-result), `controller "test": Fake(keys): the network is down`, "Run returned")
	})
}

// TestS9_WorkersDoNotWaitForTrouble: inputs that cannot sync do not delay the workers. The log
// reports that and the recovery, and a Reconcile can see what is stale.
func TestS9_WorkersDoNotWaitForTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines testkit.Buffer
		var stale error
		seen := &calls{began: time.Now()}
		c := newController(func(ctx context.Context, key string) (controller.Result, error) {
			seen.note(key)
			stale = controller.Stale(ctx)
			return controller.Result{}, nil
		}, controller.Options{Logger: slog.New(slog.NewTextHandler(&lines, nil))})
		broken, secrets := newSource("broken"), &reads{name: "Secrets", synced: make(chan struct{}), trouble: errors.New("Secrets: failing: no right")}
		broken.hold, broken.trouble = make(chan struct{}), errors.New("failing: no such API")
		well := newSource("well", "a")
		c.Watch(broken)
		c.Watch(well)
		c.Reads(secrets)
		stop := start(t, c)
		synctest.Wait()
		wantTimes(t, seen, 0)
		testkit.Equal(t, fmt.Sprint(stale), "Fake(broken): failing: no such API\nSecrets: failing: no right")
		for _, line := range []string{
			`level=WARN msg="source is not synced; workers start without it" controller=test source=Fake(broken) err="failing: no such API"`,
			`level=WARN msg="source is not synced; workers start without it" controller=test source=Secrets err="Secrets: failing: no right"`,
		} {
			testkit.Count(t, lines.String(), line, 1)
		}
		testkit.NotContains(t, lines.String(), "synced now", "too early")
		time.Sleep(time.Hour)
		close(broken.hold)
		synctest.Wait()
		(<-well.queue).Queue.AddAll([]string{"b"}, workqueue.AddOptions{})
		synctest.Wait()
		testkit.Equal(t, fmt.Sprint(stale), "Secrets: failing: no right")
		close(secrets.synced)
		synctest.Wait()
		c.Queue().Add("c")
		synctest.Wait()
		testkit.Equal(t, stale, nil)
		for _, name := range []string{"Fake(broken)", "Secrets"} {
			testkit.Count(t, lines.String(), `level=INFO msg="source is synced now" controller=test source=`+name, 1)
		}
		ok(t, stop())
	})
	testkit.Equal(t, controller.Stale(t.Context()), nil, "outside of a Reconcile")
}
