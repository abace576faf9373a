// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
)

// TestTookOver: the gap is 0 after a release, and the duration of the Lease after a crash. There is
// none for a Lease without a holder, or one's own.
func TestTookOver(t *testing.T) {
	for name, test := range map[string]struct {
		before func(api *sim.Server)
		meet   func(t *testing.T, api *sim.Server)
		want   []string
	}{
		"crash": {func(api *sim.Server) { give(api, "a") }, func(*testing.T, *sim.Server) {}, []string{"operator from a: 15s"}},
		"release": {func(api *sim.Server) { give(api, "a") }, func(t *testing.T, api *sim.Server) {
			give(api, "a2")
			testkit.Pass(time.Second)
			edit(t, api, func(s *coordinationv1.LeaseSpec) { *s.HolderIdentity, *s.LeaseDurationSeconds = "", 1 })
		}, []string{"operator from a2: 0s"}},
		"no holder": {func(*sim.Server) {}, func(*testing.T, *sim.Server) {}, nil},
		"released":  {func(api *sim.Server) { give(api, "") }, func(*testing.T, *sim.Server) {}, nil},
		"its own": {func(*sim.Server) {}, func(t *testing.T, api *sim.Server) {
			testkit.Pass(5 * time.Second)
			remake(t, api) // it loses the term and wins another
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				test.before(api)
				var told []string
				var terms int
				e, err := leaderelection.New(api.Config(), leaderelection.Options{Lease: "operator", Namespace: "default", Identity: "b", Hook: hook.Join(
					hook.On(func(o *hook.LeaseTakeover) {
						told = append(told, fmt.Sprintf("%s from %s: %s", o.Lease, o.From, o.Gap.Round(time.Second/2)))
					}),
					hook.On(func(*hook.LeaseAcquired) { terms++ }),
				)})
				ok(t, err)
				b := &replica{Elector: e}
				stop, result := b.start(t, untilStopped)
				testkit.Pass(time.Second)
				test.meet(t, api)
				testkit.Pass(time.Minute)
				stop()
				ok(t, result())
				testkit.SlicesEqual(t, told, test.want)
				testkit.NotEqual(t, terms, 0)
			})
		})
	}
}
