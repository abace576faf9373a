// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

// Remembered returns of how many keys there is a past.
func (c *Controller[K]) Remembered() int { return len(c.journal.all()) }

// Hired returns how many workers there are.
func (c *Controller[K]) Hired() int {
	slots, _ := c.workers.all()
	return len(slots)
}

// Counted returns of how many keys it is known how often they were interrupted.
func (c *Controller[K]) Counted() int { return int(c.interrupts.n.Load()) }

// CutStack is cutStack.
func CutStack(stacks, head string) string { return cutStack([]byte(stacks), []byte(head)) }

// Noted returns of how many keys it is known what they were added for while they were held.
func (c *Controller[K]) Noted() int { return int(c.news.n.Load()) }

// Spinning returns how many keys are remembered for having made themselves due.
func (c *Controller[K]) Spinning() int { return int(c.spins.n.Load()) }
