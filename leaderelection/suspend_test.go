// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/term"
)

// TestL5_AProcessThatWasSuspendedStandsBy: its work stops within the usual time.
func TestL5_AProcessThatWasSuspendedStandsBy(t *testing.T) {
	cases := map[string]func(work context.Context) error{
		"work that stops at once": func(work context.Context) error { <-work.Done(); return work.Err() },
		"work that stops late":    func(work context.Context) error { <-work.Done(); time.Sleep(seconds(2.9)); return nil },
		"work that is refused first": func(context.Context) error {
			return &term.FencedError{Err: errors.New("the Lease was not renewed in time")}
		},
	}
	for i := range 8 { // the order in which contexts end is random
		cases[fmt.Sprint("work with many contexts ", i)] = func(work context.Context) error {
			for range 20_000 { // they end one after another, and take is one of them
				context.AfterFunc(work, func() {})
			}
			<-work.Done()
			return work.Err()
		}
	}
	for name, stops := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				a := newReplica(t, api, "a")
				jump := leaderelection.Suspend(a.Elector)
				wakes := make(chan struct{})
				var terms atomic.Int32
				stop, result := a.start(t, func(take, work context.Context) error {
					if terms.Add(1) > 1 {
						return untilStopped(take, work)
					}
					<-wakes
					return stops(work)
				})
				testkit.Pass(seconds(5.5))
				jump(time.Hour)
				give(api, "b")
				close(wakes)
				testkit.Pass(seconds(10))
				unwell(t, a, "")
				testkit.Equal(t, terms.Load(), 1, "it leads while b does")
				testkit.Pass(time.Minute) // b is gone
				testkit.Equal(t, terms.Load(), 2)
				testkit.Equal(t, holder(t, api), "a")
				stop()
				ok(t, result())
				a.want(t, "acquired operator", "lost operator", "b leads operator", "acquired operator", "released operator: false")
			})
		})
	}
}

// TestL5_WorkThatGoesOnAfterASuspensionEndsRun: it has had the usual time.
func TestL5_WorkThatGoesOnAfterASuspensionEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newReplica(t, sim.NewServer(sim.Leases), "a")
		jump := leaderelection.Suspend(a.Elector)
		free := make(chan struct{})
		lost := make(chan time.Time, 1)
		_, result := a.start(t, func(_, work context.Context) error {
			<-work.Done()
			lost <- time.Now()
			<-free
			return nil
		})
		testkit.Pass(seconds(5.5))
		jump(time.Hour)
		err := result()
		testkit.ErrorContains(t, err, "was lost")
		testkit.Equal(t, time.Since(<-lost), seconds(3))
		testkit.ErrorContains(t, a.Run(t.Context(), neverLead(t)), "has not stopped", "Run was called again and returned")
		testkit.Pass(seconds(17))
		unwell(t, a, "")
		testkit.Pass(seconds(0.1))
		unwell(t, a, "was lost 20s ago")
		close(free)
	})
}

// TestL5_Observe_AHostThatWasSuspendedStandsBy: its Check counts from when it woke (L5).
func TestL5_Observe_AHostThatWasSuspendedStandsBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		h := newHost(t, api, "a")
		jump := leaderelection.SuspendOf(h.Observed)
		stop, ended := h.start(t, func(_, work context.Context) error {
			<-work.Done()
			time.Sleep(seconds(19))
			return term.FromContext(work).Trusted()
		})
		testkit.Pass(seconds(5.5))
		jump(time.Hour)
		unwell(t, h, "")
		give(api, "b")
		testkit.Pass(seconds(19))
		unwell(t, h, "")
		testkit.Pass(seconds(2))
		if errs := h.result(); len(errs) != 1 || !errors.Is(errs[0], leaderelection.ErrLost) || !done(ended) || holder(t, api) != "b" {
			t.Errorf("Lead returned %v, the elector has: %t, and %q holds the Lease", errs, done(ended), holder(t, api))
		}
		stop()
		stop, ended = h.start(t, untilStopped)
		testkit.Pass(time.Minute)
		testkit.Equal(t, holder(t, api), "a", "holds the Lease")
		stop()
		<-ended
		h.result()
	})
}

// TestL5_WorkThatHasStoppedEndsNothing: a hook kept Run from noticing until the Lease had expired.
func TestL5_WorkThatHasStoppedEndsNothing(t *testing.T) {
	for range 20 { // a select chooses at random
		synctest.Test(t, func(t *testing.T) {
			var once sync.Once
			a := newReplica(t, sim.NewServer(sim.Leases), "a", func(o *leaderelection.Options) {
				o.Hook = hook.Join(o.Hook, hook.On(func(*hook.LeaseRenewal) { once.Do(func() { time.Sleep(seconds(30)) }) }))
			})
			stop, result := a.start(t, untilStopped)
			testkit.Pass(time.Minute)
			stop()
			ok(t, result())
			a.want(t, "acquired operator", "lost operator", "acquired operator", "released operator: false")
		})
	}
}
