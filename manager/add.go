// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"

	"github.com/setpoint-dev/setpoint/leaderelection"
)

// Add adds a controller, before Run or while it runs: then the controller starts at once. An
// invalid controller ends Run, as one that fails does.
func (m *Manager) Add(c Controller) { m.main.Add(c) }

// AddLeaderOnly adds a function that runs in each term of this replica's leadership, or once
// without leader election, until its context is done; context.Cause says why. It may return
// earlier; an error ends the manager's Run. It may be added before Run or while it runs: then the
// function starts at once where this replica leads.
func (m *Manager) AddLeaderOnly(name string, run func(ctx context.Context) error) {
	m.main.AddLeaderOnly(name, run)
}

// AddEverywhere adds a function that runs on every replica, leader or not, until its context is
// done. It may return earlier; an error ends the manager's Run. It may be added before Run or while
// it runs: then the function starts at once.
func (m *Manager) AddEverywhere(name string, run func(ctx context.Context) error) {
	if m.roster.usable("AddEverywhere", name, run) {
		m.roster.addEverywhere(runnable{name: name, run: run})
	}
}

// Lease has the process campaign for one more Lease, and returns it, for controllers and functions
// that run where it is held: they may lead on another replica than the rest. The campaign begins
// when something was added to the Lease and is warm. The Identity defaults to that of the process's
// first Lease. Lease may be called before Run or while it runs, from anywhere. Run reports invalid
// options, and two Leases of one name, in whichever namespace.
func (m *Manager) Lease(o leaderelection.Options) *Lease {
	l, err := m.leases.add(o)
	m.report.failed(err)
	return l
}

// Remove stops one controller that was added, at any time: it takes no new key, its running
// Reconciles have the grace time to finish, then its sources stop, and its name is free again. It
// returns nil when all of it has returned, or the controller's error. When ctx ends earlier, the
// error names what still runs, and the stop continues. A Reconcile of the controller itself must
// not call Remove, which waits for it.
func (m *Manager) Remove(ctx context.Context, c Controller) error { return m.roster.remove(ctx, c) }
