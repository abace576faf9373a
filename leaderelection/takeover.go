// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/setpoint-dev/setpoint/hook"
)

// predecessor is who leads, or led, as long as this process does not.
type predecessor struct {
	identity string        // empty: nobody was seen to lead
	heard    time.Duration // when the Lease was last seen to change, by the candidate's clock
}

// see takes down a change that is not our own.
func (p *predecessor) see(l *coordinationv1.Lease, now time.Duration) {
	if holder := holderOf(l); holder != "" {
		p.identity = holder
	}
	p.heard = now
}

// tookOver reports, of a Lease that is ours now, who had it before.
func (c *candidate) tookOver() {
	from := c.before
	c.before = predecessor{}
	if from.identity != "" && c.o.Hooks.TookOver != nil {
		c.o.Hooks.TookOver(hook.LeaseTakeover{Lease: c.o.Lease, From: from.identity, Gap: c.now().mono - from.heard})
	}
}
