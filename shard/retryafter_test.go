// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/shard"
)

// TestP2_ALongRetryAfterIsNotWaitedFor: a member that gets it at its start serves its slots soon
// after the API server answers again.
func TestP2_ALongRetryAfterIsNotWaitedFor(t *testing.T) {
	for _, verb := range []string{"list", "watch", "get", "update"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				f.api.Intercept(func(r *sim.Request) (*http.Response, error) {
					if r.Verb != verb {
						return nil, nil
					}
					return r.FailWith(metav1.Status{
						Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
						Details: &metav1.StatusDetails{RetryAfterSeconds: 3600},
					})
				})
				a := f.start("a", shard.Options{})
				time.Sleep(time.Minute)
				f.api.Intercept(nil)
				time.Sleep(20 * time.Second)
				synctest.Wait()
				testkit.Len(t, a.Status().Owned, 256)
				a.stop()
				testkit.Equal(t, <-a.done, nil)
			})
		})
	}
}
