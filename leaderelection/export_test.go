// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"sync/atomic"
	"time"
)

// SetWall sets the wall clock of an elector.
func SetWall(e *Elector, now func() time.Time) { e.now = newClock(now) }

// SetWallOf is SetWall for an Observed.
func SetWallOf(o *Observed, now func() time.Time) { o.now = newClock(now) }

// Suspend returns a function that moves both clocks of an elector forward, as after a suspension.
// Call it before the elector runs.
func Suspend(e *Elector) (jump func(time.Duration)) { return jumping(&e.now) }

// SuspendOf is Suspend for an Observed.
func SuspendOf(o *Observed) (jump func(time.Duration)) { return jumping(&o.now) }

func jumping(c *clock) (jump func(time.Duration)) {
	var by atomic.Int64
	now := *c
	*c = func() instant {
		i, d := now(), time.Duration(by.Load())
		return instant{i.mono + d, i.wall + d}
	}
	return func(d time.Duration) { by.Add(int64(d)) }
}
