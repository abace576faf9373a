// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"math/rand/v2"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// lateForm delays one of the two watches of Secrets: the metadata or the objects come late.
type lateForm struct{}

func (lateForm) name() string { return "late form" }
func (lateForm) line() string { return "" }

func (lateForm) strike(w *world, r *rand.Rand) int {
	before := w.births.waits.Load()
	w.rule(r, fault.Rule{
		Match: fault.Match{Verbs: []string{"watch"}, Resources: []string{"secrets"}}, Times: 1, Lag: between(r, time.Second, 40*time.Second),
	}, between(r, time.Minute, 5*time.Minute), true)
	return int(w.births.waits.Load() - before)
}
