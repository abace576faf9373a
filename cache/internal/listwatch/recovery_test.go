// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// lagging is a store that does not take its events, as one whose indexer is slow.
type lagging struct {
	toolscache.Store

	lags *atomic.Bool
}

func (l lagging) LastStoreSyncResourceVersion() string {
	if l.lags.Load() {
		return "1"
	}
	return l.Store.LastStoreSyncResourceVersion()
}

// TestS9_ARecoveryWaitsForTheStore: a failure lasts until the store has the events that the watch
// delivered, or for a minute, because a store may drop the last event.
func TestS9_ARecoveryWaitsForTheStore(t *testing.T) {
	for name, catchesUp := range map[string]bool{"a slow store": true, "a store that never has the last event": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
				f, stop := follow(t, api)
				defer stop()
				time.Sleep(10 * time.Second)
				api.Intercept(onWatch(func(r *sim.Request) (*http.Response, error) { return r.Refuse() }))
				api.CutWatches()
				time.Sleep(10 * time.Second)
				if phase, _, _ := f.reported(); phase != hook.Failing {
					t.Fatalf("without a watch, the informer is %s", phase)
				}
				f.lags.Store(true)
				api.Put(sim.ConfigMaps, testkit.ConfigMap("b"))
				api.Intercept(nil)
				time.Sleep(40 * time.Second) // a retry within 30 s, and then more than missedAtMost
				if phase, _, _ := f.reported(); phase != hook.Failing || !f.has("b") {
					t.Errorf("while the store lags, the informer is %s; it was sent b: %t", phase, f.has("b"))
				}
				if catchesUp {
					f.lags.Store(false)
					time.Sleep(time.Second)
				} else {
					time.Sleep(time.Minute)
				}
				if phase, why, _ := f.reported(); phase != hook.Syncing || why != "" {
					t.Errorf("after the wait, the informer is %s: %s", phase, why)
				}
			})
		})
	}
}
