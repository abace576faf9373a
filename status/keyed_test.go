// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"testing"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/status"
)

// TestApply_TwoOwnersWithoutAKeyDoNotWriteForEver: without a schema, conditions are one field. Each
// owner's apply would remove the other's condition, and its event would start the other owner.
func TestApply_TwoOwnersWithoutAKeyDoNotWriteForEver(t *testing.T) {
	api := sim.NewServer(served)
	c, err := client.New(api.Config(), client.Options{Scheme: newScheme()})
	testkit.NoError(t, err)
	defer c.Close()
	h := client.For[*Gauge](c)
	put(t, api, 1, 0)
	versions := map[string]bool{}
	for i := range 20 {
		g, err := h.GetLive(t.Context(), oil)
		testkit.NoError(t, err)
		owner, other := "A", "B"
		if i%2 == 1 {
			owner, other = other, owner
		}
		set := setFor(g)
		set.True(owner, "Good", "")
		_, err = status.Apply(t.Context(), h, set, desired(g, set.ApplyConfigurations()), client.FieldOwner(owner))
		now, readErr := h.GetLive(t.Context(), oil)
		testkit.NoError(t, readErr)
		versions[now.ResourceVersion] = true
		switch {
		case err != nil:
			wants(t, err, "status of default/oil: the condition "+other+" of another field manager is lost", "x-kubernetes-list-map-keys: [type]")
		case len(g.Status.Conditions) > 0 && g.Status.Conditions[0].Type == other:
			t.Fatalf("apply %d has removed the condition %s without an error", i, other)
		}
	}
	testkit.AtMost(t, len(versions), 3)
}

// TestApply_OneOwnerNeedsNoKey: nothing is lost, so there is no error.
func TestApply_OneOwnerNeedsNoKey(t *testing.T) {
	api := sim.NewServer(served)
	c, err := client.New(api.Config(), client.Options{Scheme: newScheme()})
	testkit.NoError(t, err)
	defer c.Close()
	h := client.For[*Gauge](c)
	put(t, api, 1, 0)
	g, err := h.GetLive(t.Context(), oil)
	for range 3 {
		testkit.NoError(t, err)
		set := setFor(g)
		set.Current("Full", "")
		g, err = status.Apply(t.Context(), h, set, desired(g, set.ApplyConfigurations()))
	}
}
