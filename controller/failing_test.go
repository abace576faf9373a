// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/term"
	"github.com/setpoint-dev/setpoint/why"
)

// failNamed fails as the key asks for. runs counts the Reconciles of the key.
func failNamed(ctx context.Context, key string, runs int) error {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no right"))
	var err error
	switch key {
	case "good":
		return nil
	case "terminal":
		return controller.Terminal(forbidden)
	case "gives up":
		return forbidden
	case "panics":
		if runs == 1 {
			panic(forbidden)
		}
		time.Sleep(time.Hour)
		return nil
	case "times out":
		<-ctx.Done()
		err = ctx.Err()
	case "fenced":
		err = fmt.Errorf("cannot write: %w", term.ErrFenced)
	case "forbidden":
		err = forbidden
	default:
		err = errFlaky
	}
	return controller.RetryAfter(err, 3*time.Hour)
}

// TestKeys_HaveStatesAndFailures: Keys lists the failing keys, and those that run or wait.
func TestKeys_HaveStatesAndFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := newController(func(ctx context.Context, key string) (controller.Result, error) {
			switch key {
			case "slow":
				<-ctx.Done()
			case "later":
				return controller.Result{RequeueAfter: time.Hour}, nil
			}
			return controller.Result{}, failNamed(ctx, key, 1)
		}, controller.Options{Logger: silent, Workers: 4})
		c.Watch(newSource("keys", "good", "terminal", "forbidden", "later", "slow"))
		stop := start(t, c)
		time.Sleep(time.Minute)
		synctest.Wait()
		got := map[string]string{}
		for k := range c.Keys() {
			text := k.State
			if k.Failure != nil {
				text += fmt.Sprintf(" %s %d", k.Failure.Reason, k.Attempts)
			}
			if !k.Due.IsZero() {
				text += " " + k.Due.Sub(began).Round(time.Hour).String()
			}
			got[k.Key] = text
		}
		want := map[string]string{"terminal": "idle Terminal 1", "forbidden": "waiting Forbidden 1 3h0m0s", "later": "waiting 1h0m0s", "slow": "held"}
		testkit.Equal(t, fmt.Sprint(got), fmt.Sprint(want))
		for range c.Keys() {
			break
		}
		r := c.Report()
		if !r.Leading || r.Workers != 4 || r.Queue.Held != 1 || r.Queue.Waiting != 2 || r.Took.Count() != 4 || r.Failing["Forbidden"] != 1 {
			t.Errorf("the report is %+v", r)
		}
		ok(t, stop())
		for k := range c.Keys() {
			testkit.Equal(t, k.Failure, nil, "after the term")
		}
	})
}

// TestFailing_Reasons: each failing key has a reason, its attempts and the time of the next one.
func TestFailing_Reasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, runs := time.Now(), map[string]int{}
		c := newController(func(ctx context.Context, key string) (controller.Result, error) {
			runs[key]++ // there is one worker at first
			return controller.Result{}, failNamed(ctx, key, runs[key])
		}, controller.Options{Logger: silent, Workers: 1, MaxAttempts: 3, Deadline: 10 * time.Second})
		c.Watch(newSource("keys", "good", "terminal", "gives up", "fenced", "forbidden", "flaky", "paused", "times out"))
		testkit.Len(t, c.Failing(), 0, "before Run")
		stop := start(t, c)
		time.Sleep(time.Minute)
		c.PauseKey("paused")
		c.Queue().Add("panics")
		time.Sleep(time.Minute)
		synctest.Wait()
		soon := began.Add(3 * time.Hour)
		for i, want := range []struct {
			key      string
			reason   why.Reason
			terminal bool
			attempts int
			next     time.Time
		}{
			{"fenced", why.Fenced, false, 1, soon},
			{"flaky", why.Error, false, 1, soon},
			{"forbidden", why.Forbidden, false, 1, soon},
			{"gives up", why.GaveUp, true, 3, time.Time{}},
			{"panics", why.Panicked, false, 1, began.Add(time.Minute + 5*time.Millisecond)},
			{"paused", why.Error, false, 1, time.Time{}},
			{"terminal", why.Terminal, true, 1, time.Time{}},
			{"times out", why.TimedOut, false, 1, soon.Add(10 * time.Second)},
		} {
			got := c.Failing()
			if len(got) != 8 {
				t.Fatalf("got %v", got)
			}
			k := got[i]
			if k.Key != want.key || k.Reason != want.reason || k.Terminal != want.terminal || k.Attempts != want.attempts ||
				k.Next.Sub(want.next).Abs() > time.Second || k.Err == "" || k.ReconcileID == "" || k.At.IsZero() {
				t.Errorf("got %+v, want %+v", k, want)
			}
		}
		time.Sleep(2 * time.Hour)
		testkit.Len(t, c.Failing(), 7, "after the success of a retry")
		ok(t, stop())
		testkit.Len(t, c.Failing(), 0, "after the term")
	})
}
