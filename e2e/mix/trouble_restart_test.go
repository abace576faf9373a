// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"math/rand/v2"
	"time"
)

// restart ends a replica, which releases its Lease and starts again.
type restart struct{}

func (restart) name() string { return "restart" }
func (restart) line() string { return "" }

func (restart) strike(w *world, r *rand.Rand) int {
	w.some(r).restart()
	w.plane.pause(between(r, time.Second, time.Minute))
	return 1
}
