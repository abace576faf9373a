// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestP2_TheAgeOfUnservedSlotsGrows also if the group reports nothing any more. It is 0 without
// unserved slots.
func TestP2_TheAgeOfUnservedSlotsGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewPedanticRegistry()
		m := newMetrics(t, r)
		want := func(age string) {
			t.Helper()
			text := "# HELP setpoint_shard_unserved_seconds Time for which the oldest unserved slot of the group has no member that acts.\n" +
				"# TYPE setpoint_shard_unserved_seconds gauge\nsetpoint_shard_unserved_seconds{group=\"web\"} " + age + "\n"
			testkit.Equal(t, testutil.GatherAndCompare(r, strings.NewReader(text), "setpoint_shard_unserved_seconds"), nil)
		}
		m.Send(&hook.ShardGroup{Group: "web", Unserved: 3, UnservedSince: time.Now().Add(-5 * time.Second)})
		want("5")
		time.Sleep(time.Minute)
		want("65")
		m.Send(&hook.ShardGroup{Group: "web"})
		want("0")
	})
}
