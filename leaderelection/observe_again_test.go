// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/term"
)

// TestObserve_AnElectorThatBeginsAnewLeadsAgain: a term whose work stopped too late for the release
// is not renewed. The next run of the elector makes another term.
func TestObserve_AnElectorThatBeginsAnewLeadsAgain(t *testing.T) {
	for _, hang := range []float64{3, 9.9, 10.5, 11, 13, 40} {
		t.Run(fmt.Sprint(hang), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				h := newHost(t, api, "a")
				var terms []*term.Term
				lead := func(take, work context.Context) error {
					if n := len(terms); n > 0 && terms[n-1].Trusted() == nil {
						t.Error("it leads in a second term while it trusts the first")
					}
					terms = append(terms, term.FromContext(work))
					<-take.Done()
					if len(terms) == 1 {
						time.Sleep(seconds(hang))
					}
					return nil
				}
				stop, ended := h.start(t, lead)
				testkit.Pass(seconds(3))
				stop()
				<-ended
				stop, ended = h.start(t, lead)
				testkit.Pass(time.Minute)
				if len(terms) != 2 || terms[1].Trusted() != nil || holder(t, api) != "a" {
					t.Errorf("it led %d times, and %q holds the Lease", len(terms), holder(t, api))
				}
				stop()
				<-ended
				h.result()
			})
		})
	}
}

// TestL1_Observe_ANamesakeIsARival: client-go would take the record for its own.
func TestL1_Observe_ANamesakeIsARival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a, b := newHost(t, api, "same"), newHost(t, api, "same")
		a.keeps = true
		stop, ended := a.start(t, untilStopped)
		testkit.Pass(seconds(5))
		var led time.Time
		stopB, endedB := b.start(t, func(take, work context.Context) error {
			led = time.Now()
			return untilStopped(take, work)
		})
		testkit.Pass(time.Minute)
		testkit.Equal(t, led.IsZero(), true, "the second leads while the first does")
		stop()
		<-ended
		last := lease(t, api).Spec.RenewTime.Time
		testkit.Pass(time.Minute)
		// client-go polls.
		if took := led.Sub(last); took < seconds(15) || took > seconds(15+2*4.4) {
			t.Errorf("the second leads %s after the last renewal of the first", took)
		}
		stopB()
		<-endedB
		a.result()
		b.result()
	})
}
