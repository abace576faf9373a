// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"math/rand/v2"
	"time"
)

// halfOpen is a connection on which nothing arrives any more, in either direction.
type halfOpen struct{}

func (halfOpen) name() string { return "half-open" }
func (halfOpen) line() string { return "the lease " }

func (halfOpen) strike(w *world, r *rand.Rand) int {
	return w.plane.halfOpen(w.some(r).cfg, between(r, 40*time.Second, 4*time.Minute))
}
