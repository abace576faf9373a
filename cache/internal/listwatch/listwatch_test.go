// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestListerWatcher_Reports: it reports the mapping, each list and the state, and counts requests.
func TestListerWatcher_Reports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		f, stop := follow(t, api)
		defer stop()
		synctest.Wait()
		if phase, why, listed := f.reported(); phase != hook.Syncing || why != "" || listed != 1 {
			t.Errorf("it reported %s, %q, %d lists", phase, why, listed)
		}
		if version, ok := f.lw.Listed(); !f.has("a") || !ok || version != api.Version() || f.mapped.Resource.Resource != "configmaps" {
			t.Errorf("listed at %q, %t; the mapping is %v", version, ok, f.mapped)
		}
		api.Put(sim.ConfigMaps, testkit.ConfigMap("b"))
		synctest.Wait()
		testkit.Equal(t, f.has("b"), true, "the store does not have what was created")
		testkit.Equal(t, f.lw.Counts(), listwatch.Counts{Lists: 1, Watches: 1})
	})
}

// TestListerWatcher_WatchGoesOn: a broken watch resumes without another list.
func TestListerWatcher_WatchGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		f, stop := follow(t, api)
		defer stop()
		time.Sleep(time.Minute)
		api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Refuse() })
		api.CutWatches()
		time.Sleep(10 * time.Minute)
		if phase, why, _ := f.reported(); phase != hook.Failing || why == "" {
			t.Errorf("it reported %s, %q", phase, why)
		}
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		api.Intercept(nil)
		// the longest pause, and the wait for what was missed
		time.Sleep(5 * time.Second)
		if phase, why, listed := f.reported(); phase != hook.Syncing || why != "" || listed != 1 || !f.has("a") {
			t.Errorf("it reported %s, %q, %d lists", phase, why, listed)
		}
	})
}
