// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestFailingKeys_EndWithTheController: controllers of one name are summed by reason, and a reason
// stays with 0 until its controller stops.
func TestFailingKeys_EndWithTheController(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	m := newMetrics(t, r)
	counts := []map[string]int{{"Forbidden": 2, "Error": 0}, {"Forbidden": 3, "\xff": 1}, nil}
	for i, name := range []string{"website", "website", "quiet"} {
		m.Send(&hook.ControllerStarted{Controller: name, Of: i, Stats: func() hook.ControllerStats { return hook.ControllerStats{Workers: 1, Failing: counts[i]} }})
	}
	want := func(n float64, labels ...string) {
		t.Helper()
		testkit.Equal(t, value(t, r, "setpoint_failing_keys", labels...), n, labels)
	}
	want(5, "website", "Forbidden")
	want(0, "website", "Error")
	want(1, "website", `"\xff"`)
	want(-1, "quiet", "Error")
	testkit.Equal(t, value(t, r, "controller_runtime_max_concurrent_reconciles", "quiet"), 1, "a controller without failures has workers")
	m.Send(&hook.ControllerStopped{Controller: "website", Of: 0})
	want(3, "website", "Forbidden")
	want(-1, "website", "Error")
	m.Send(&hook.ControllerStopped{Controller: "website", Of: 1})
	want(-1, "website", "Forbidden")
}
