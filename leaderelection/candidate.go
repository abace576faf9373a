// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"log/slog"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/term"
)

// candidate is an elector in one Run. Only Run's goroutine uses it.
type candidate struct {
	*leases
	now     clock
	stamper stamper
	current *atomic.Pointer[tenure] // the elector's
	log     *slog.Logger

	rival      rival
	before     predecessor
	authors    authors
	left       *term.Handover // by the last holder, nil: nothing is known
	leader     string         // as last reported
	trouble    string         // as last logged
	watchAgain time.Time      // after it was refused
	polls      bool           // as last logged: it could not be watched
}

// see notes the Lease as it is now, and reports whether it changed.
func (c *candidate) see(lease *coordinationv1.Lease) (changed bool) {
	now := c.now().mono
	changed = c.rival.see(lease, c.authors.mine(lease), now)
	if changed {
		c.inherit(lease)
	}
	if lease == nil || !changed {
		return changed
	}
	if !c.authors.mine(lease) {
		c.before.see(lease, now)
	}
	leader := holderOf(lease)
	impostor := leader == c.o.Identity && !c.authors.mine(lease)
	if impostor {
		leader += " in another process"
	}
	known := leader == c.leader
	c.leader = leader
	switch {
	case known || leader == "":
	case impostor:
		c.log.Warn("the lease is held under the identity of this process, but not by it: its expiry is waited for", "identity", c.o.Identity)
	case leader != c.o.Identity && c.o.Hooks.Leader != nil:
		c.o.Hooks.Leader(c.o.Lease, leader)
	}
	return changed
}

// inherit notes what a Lease hands over from the term before. It stays until another process holds
// the Lease: our own acquisition, which removes it, may not be answered.
func (c *candidate) inherit(l *coordinationv1.Lease) {
	if c.authors.mine(l) {
		return
	}
	c.left = nil
	if l == nil {
		return
	}
	left, err := c.stamper.inheritance(l)
	if err != nil {
		c.log.Warn("what the last holder of the lease has written cannot be read, so its writes are not waited for", "annotation", WrittenAnnotation, "err", err)
	}
	c.left = left
}

// predecessor is who leads, or led, as long as this process does not.
type predecessor struct {
	identity string        // empty: nobody was seen to lead
	heard    time.Duration // when the Lease was last seen to change, by the candidate's clock
}

// see notes a change that is not our own.
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

// failed logs what goes wrong, once until it goes well or wrong in another way.
func (c *candidate) failed(doing string, err error) {
	if err == nil || c.trouble == err.Error() {
		return
	}
	c.trouble = err.Error()
	c.log.Warn(doing, "err", err)
	if c.o.Hooks.Trouble != nil {
		c.o.Hooks.Trouble(c.o.Lease, err)
	}
}

// succeeded logs that trouble is over.
func (c *candidate) succeeded() {
	if c.trouble == "" {
		return
	}
	c.trouble = ""
	c.log.Info("the lease can be read and written again")
	if c.o.Hooks.Trouble != nil {
		c.o.Hooks.Trouble(c.o.Lease, nil)
	}
}
