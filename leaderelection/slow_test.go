// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestL5_ASlowAnswerDoesNotLengthenTheTerm: rivals count from when the Lease was written, not from
// its answer.
func TestL5_ASlowAnswerDoesNotLengthenTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newReplica(t, api, "a")
		ended := false
		stop, result := a.start(t, func(_, work context.Context) error {
			<-work.Done()
			testkit.AtLeast(t, seconds(15)-time.Since(lease(t, api).Spec.RenewTime.Time), 2*time.Second)
			ended = true
			return nil
		})
		testkit.Pass(seconds(5.5))
		slow := func(req *http.Request) (*http.Response, error) {
			answer, err := api.RoundTrip(req)
			time.Sleep(seconds(4.5))
			a.hang()
			return answer, err
		}
		a.line.Store(&slow)
		testkit.Pass(seconds(20))
		testkit.Equal(t, ended, true, "the term goes on")
		stop()
		ok(t, result())
	})
}
