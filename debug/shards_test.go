// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/shard"
)

// TestShards: the page is a list of groups, with the state of each.
func TestShards(t *testing.T) {
	api := sim.NewServer(sim.Leases)
	t.Cleanup(api.Close)
	g, err := shard.New(api.Config(), shard.Options{Election: leaderelection.Options{Lease: "web", Namespace: "default"}})
	testkit.NoError(t, err)
	h := debug.Shards(g)
	w := get(t, h, "GET", "/")
	var shown []struct{ Group string }
	if err := json.Unmarshal(w.Body.Bytes(), &shown); err != nil || len(shown) != 1 || shown[0].Group != "default/web" {
		t.Errorf("%v: %s", err, w.Body)
	}
	testkit.Equal(t, get(t, h, "GET", "/web").Code, http.StatusNotFound)
	testkit.Equal(t, get(t, debug.Shards(nil), "GET", "/").Body.String(), "[]\n", "no group")
}
