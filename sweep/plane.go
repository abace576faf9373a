// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest/sim"
)

// plane is the control plane of a run.
type plane interface {
	config() *rest.Config
	pace() pace
	// version returns the newest version.
	version(ctx context.Context) (string, error)
	// settle returns when all programs wait for something, as far as the plane can tell.
	settle()
	// backup returns a function that restores the present state, or nil.
	backup() (restore func())
	// died ends the Leases, by namespace/name, of a process that has crashed.
	died(ctx context.Context, leases []string)
}

// pace has the times of a run.
type pace struct {
	quiet    time.Duration // without a change, an idle operator has converged
	still    time.Duration // without a change, a failing operator has converged
	patience time.Duration // for one step
	tail     time.Duration // after the last step
	restart  time.Duration // after a crash, until the next process
	joins    time.Duration // after a start, until a new member of a shard group has its share
	idle     time.Duration // for one call of Idle
	lag      time.Duration // how old a view is
	lasts    time.Duration // how long a fault of time lasts
	restore  time.Duration // after a write, until the backup
}

// ending is the time for Run, after the end of its context.
const ending = time.Minute

// simulated is a sim, in a bubble.
type simulated struct{ server *sim.Server }

func (s simulated) config() *rest.Config { return s.server.Config() }

func (simulated) pace() pace {
	return pace{
		quiet: 10 * time.Second, still: 10 * time.Minute, patience: 20 * time.Minute, tail: 30 * time.Second,
		restart: 5 * time.Second, joins: 40 * time.Second, idle: 10 * time.Second,
		lag: 20 * time.Second, lasts: 40 * time.Second, restore: 10 * time.Second,
	}
}

func (s simulated) version(context.Context) (string, error) { return s.server.Version(), nil }

func (simulated) settle() { synctest.Wait() }

func (s simulated) backup() (restore func()) {
	b := s.server.Backup()
	return b.Restore
}

// died lets the Leases expire, as in a cluster.
func (simulated) died(context.Context, []string) {}
