// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

// Snapshot returns a copy of the queue's state at this moment, a workqueue.Snapshot[K]: every key with its state, due time,
// attempts and reasons. It is what package debug serves.
func (c *Controller[K]) Snapshot() any { return c.queue.Snapshot() }
