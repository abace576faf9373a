// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"cmp"
	"log/slog"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/term"
)

// campaigner is what an elector keeps from one Run to the next.
type campaigner struct {
	leases
	now     clock
	stamper stamper
	current atomic.Pointer[tenure] // the last one; nil: there was none
}

// candidate is an elector in one Run. Only Run's goroutine uses it.
type candidate struct {
	*campaigner

	log     *slog.Logger
	rival   rival
	authors authors

	from  string        // who was last seen to lead while this process did not; empty: nobody
	heard time.Duration // when that Lease was last seen to change, by the candidate's clock

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
	leader := holderOf(lease)
	impostor := leader == c.o.Identity && !c.authors.mine(lease)
	if !c.authors.mine(lease) {
		c.from, c.heard = cmp.Or(leader, c.from), now
	}
	if impostor {
		leader += " in another process"
	}
	known := leader == c.leader
	c.leader = leader
	switch {
	case known || leader == "":
	case impostor:
		c.log.Warn("the lease is held under the identity of this process, but not by it: its expiry is waited for", "identity", c.o.Identity)
	case leader != c.o.Identity:
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

// tookOver reports who had the Lease before, when it is ours.
func (c *candidate) tookOver() {
	if c.from != "" {
		c.o.Hooks.TookOver(hook.LeaseTakeover{Lease: c.o.Lease, From: c.from, Gap: c.now().mono - c.heard})
	}
	c.from = ""
}

// failed logs what goes wrong, once until it goes well or wrong in another way.
func (c *candidate) failed(doing string, err error) {
	if err == nil || c.trouble == err.Error() {
		return
	}
	c.trouble = err.Error()
	c.log.Warn(doing, "err", err)
	c.o.Hooks.Trouble(c.o.Lease, err)
}

// succeeded logs that trouble is over.
func (c *candidate) succeeded() {
	if c.trouble == "" {
		return
	}
	c.trouble = ""
	c.log.Info("the lease can be read and written again")
	c.o.Hooks.Trouble(c.o.Lease, nil)
}
