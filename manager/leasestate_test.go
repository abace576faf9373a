// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

// TestLeases_NameTheLeader: on the leader, on a standby, and after a hand-over.
func TestLeases_NameTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		nothing := func(ctx context.Context) error { <-ctx.Done(); return nil }
		a, b := newManager(api, elected), newManager(api, elected)
		a.AddLeaderOnly("nothing", nothing)
		b.AddLeaderOnly("nothing", nothing)
		want := func(m *manager.Manager, leader string) {
			t.Helper()
			if got := m.Leases(); len(got) != 1 || got[0] != (manager.LeaseState{Lease: "default/operator", Identity: m.Identity(), Leader: leader}) {
				t.Errorf("got %+v, want the leader %q", got, leader)
			}
		}
		want(a, "")
		stopA, resultA := start(t, a)
		testkit.Pass(time.Minute)
		stopB, resultB := start(t, b)
		testkit.Pass(time.Minute)
		want(a, a.Identity())
		want(b, a.Identity())
		stopA()
		ok(t, resultA())
		testkit.Pass(time.Minute)
		want(a, "")
		want(b, b.Identity())
		stopB()
		ok(t, resultB())
		if got := newManager(api, nil).Leases(); got != nil {
			t.Errorf("without leader election: %+v", got)
		}
	})
}
