// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import "context"

// Unsynced returns, in words, what the controller watches or Reads and is not synced, and where it stands. It is for people and
// health checks: it asks each of them.
func (c *Controller[K]) Unsynced() []string {
	c.mu.Lock()
	watches, reads := c.watches, c.reads
	c.mu.Unlock()
	var waits []string
	add := func(what Readable) {
		if what.Stale() != nil || !isSynced(context.Background(), what) {
			waits = append(waits, stateOf(what))
		}
	}
	for _, w := range watches {
		add(w.source)
	}
	for _, r := range reads {
		add(r)
	}
	return waits
}
