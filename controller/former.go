// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/ledger"
)

// Unshown returns the writes of the last Reconcile of each key that the caches do not show yet. A
// manager gives them to the next controller of the same name, see Inherit. It may be called from
// anywhere, and returns the most when all Reconciles have returned.
func (c *Controller[K]) Unshown() []ledger.Write {
	var writes []ledger.Write
	var pasts []*past
	for _, r := range c.records.all() {
		if r.past != nil {
			pasts = append(pasts, r.past)
		}
	}
	c.mu.Lock()
	if c.former != nil { // it did not get as far as to wait for them
		pasts = append(pasts, c.former)
	}
	c.mu.Unlock()
	for _, p := range pasts {
		all := p.awaited
		if p.answers != nil {
			all, _ = awaited(p.answers)
		}
		for _, w := range slices.Concat(all, p.givenUp) {
			if missing, unknown := c.gapOf(&w); missing != nil || unknown != nil {
				writes = append(writes, w.Write)
			}
		}
	}
	return writes
}

// Inherit makes the first Reconcile wait until the caches show these writes, which a controller of the
// same name has made, for at most Options.ReadYourWrites (C6). A manager calls it when a controller
// is added in place of one that was removed. Call it once, before Lead.
func (c *Controller[K]) Inherit(writes []ledger.Write) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.former = &past{}
	for _, w := range writes {
		c.former.awaited = append(c.former.awaited, unseen{Write: w})
	}
}

// awaitFormer waits for what Inherit was given. It reports false if the controller is to stop
// meanwhile. After the bound, Stale names what is missing.
func (c *Controller[K]) awaitFormer(take, work context.Context) (goOn bool) {
	c.mu.Lock()
	former := c.former
	c.mu.Unlock()
	if former == nil || len(former.awaited) == 0 || c.o.ReadYourWrites < 0 {
		return true
	}
	p := &past{awaited: former.awaited}
	expired, unknown, goOn := c.await(take, work, func() (gap, error) { return c.outstanding(work, p) })
	if !goOn {
		return false // a later term waits again
	}
	left := &past{givenUp: p.unsure}
	if expired {
		left.givenUp = slices.Clone(p.awaited)
	}
	missing := c.stillMissing(left)
	c.mu.Lock()
	c.former = left
	c.mu.Unlock()
	if missing != nil {
		c.logger(work).Warn("started before the writes of the controller of this name that was removed were visible in the cache", "missing", missing)
	}
	if c.o.Hooks.Awaited != nil {
		c.tellAwaited(hook.Awaited{Expired: expired, Doubts: errors.Join(missing, unknown)})
	}
	return true
}

// formerMissing names what the controller that was removed wrote and the caches do not show.
func (c *Controller[K]) formerMissing() error {
	c.mu.Lock()
	p := c.former
	c.mu.Unlock()
	if p == nil || len(p.givenUp) == 0 {
		return nil
	}
	return c.stillMissing(&past{givenUp: slices.Clone(p.givenUp)}) // a copy: others ask at the same time
}
