// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestDurations_QuantilesAreNear: each is within a quarter, from below a microsecond to hours.
func TestDurations_QuantilesAreNear(t *testing.T) {
	for _, took := range []time.Duration{-time.Second, 0, 400, 1023, 1024, 1500, time.Millisecond, 1300 * time.Millisecond, time.Minute, time.Hour, 100 * time.Hour} {
		d := controller.DurationsOf(took, took, took)
		from, to := max(0, took)*3/4, max(time.Microsecond+24, took*5/4)
		if took > 64*time.Minute {
			from, to = time.Hour, 80*time.Minute // the last bucket has no end
		}
		for _, share := range []float64{0.01, 0.5, 1} {
			if got := d.Quantile(share); got < from && took > 1024 || got > to {
				t.Errorf("three of %s: quantile %v is %s", took, share, got)
			}
		}
	}
	var mixed []time.Duration
	for range 98 {
		mixed = append(mixed, 10*time.Millisecond)
	}
	d := controller.DurationsOf(append(mixed, 3*time.Second, 3*time.Second)...)
	if p50, p99 := d.Quantile(0.5), d.Quantile(0.99); p50 > 13*time.Millisecond || p99 < 2*time.Second || d.Count() != 100 {
		t.Errorf("p50 %s, p99 %s of %d", p50, p99, d.Count())
	}
	if none := d.Since(d); none.Count() != 0 || none.Quantile(0.5) != 0 {
		t.Errorf("nothing since then, but %d Reconciles with p50 %s", none.Count(), none.Quantile(0.5))
	}
}

// TestReport_Took counts each Reconcile by its duration.
func TestReport_Took(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(func(_ context.Context, key string) (controller.Result, error) {
			if key == "slow" {
				time.Sleep(time.Minute)
			}
			return controller.Result{}, nil
		}, controller.Options{})
		c.Watch(newSource("keys", "a", "b"))
		stop := start(t, c)
		time.Sleep(time.Hour)
		c.Queue().Add("slow")
		time.Sleep(30 * time.Second)
		for k := range c.Keys() {
			testkit.Equal(t, k.Key, "slow", "after 30s")
			testkit.Equal(t, k.Took, 30*time.Second, "after 30s")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if d := c.Report().Took; d.Count() != 3 || d.Quantile(0.5) > time.Second || d.Quantile(1) < 45*time.Second || d.Quantile(1) > 75*time.Second {
			t.Errorf("%d Reconciles, p50 %s, the longest %s", d.Count(), d.Quantile(0.5), d.Quantile(1))
		}
		ok(t, stop())
	})
}
