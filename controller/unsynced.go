// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

// Unsynced returns, in words, what the controller watches or Reads and is not synced, and where it stands. It is for people and
// health checks: it asks each of them.
func (c *Controller[K]) Unsynced() []string {
	return c.inputs.unsynced()
}
