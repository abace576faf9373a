// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"math/rand/v2"
	"time"
)

// restored is an API server that is restored from a backup: its versions go back, and changes are
// lost.
type restored struct{}

func (restored) name() string { return "restored" }
func (restored) line() string { return "the API server was restored from a backup" }

func (restored) strike(w *world, r *rand.Rand) int {
	restore := w.plane.backup()
	if restore == nil {
		return 0
	}
	w.plane.pause(between(r, 10*time.Second, 5*time.Minute))
	w.births.restored()
	for _, one := range w.replicas {
		if m, synced := one.process(); synced {
			w.outdate(one, m)
		}
	}
	restore()
	return 1
}
