// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

// Remembered returns of how many keys there is a past.
func (c *Controller[K]) Remembered() int { return len(c.journal.all()) }
