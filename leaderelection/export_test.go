// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import "time"

// SetWall sets the clock that a machine's owner can set.
func SetWall(e *Elector, now func() time.Time) { e.wall = now }

// SetWallOf does so for an Observed.
func SetWallOf(o *Observed, now func() time.Time) { o.wall = now }
