// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// undecodable is a board that does not fit the Go type, until a person corrects it.
type undecodable struct{}

func (undecodable) name() string { return "undecodable" }
func (undecodable) line() string { return "an object cannot be decoded or transformed" }

func (undecodable) strike(w *world, r *rand.Rand) int {
	name := fmt.Sprintf("broken-%d", r.IntN(3))
	w.set(name, r.IntN(1<<20)) // it has children then
	w.plane.pause(between(r, 2*time.Minute, 3*time.Minute))
	if !w.set(name, int64(7)) {
		return 0
	}
	w.plane.pause(between(r, 30*time.Second, 3*time.Minute))
	w.set(name, "whole")
	return 1
}
