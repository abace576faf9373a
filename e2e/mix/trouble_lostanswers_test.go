// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"math/rand/v2"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// lostAnswers executes writes and breaks the connection before their answers.
type lostAnswers struct{}

func (lostAnswers) name() string { return "lost answers" }
func (lostAnswers) line() string { return "" }

func (lostAnswers) strike(w *world, r *rand.Rand) int {
	f := w.plane.add(fault.Rule{
		Match: fault.Match{Verbs: []string{"create", "update", "patch", "delete"}, Resources: []string{"boards", "configmaps", "secrets"}, Func: w.ofReplica},
		Times: 1 + r.IntN(4), Lose: true,
	})
	w.set("lost", r.IntN(1<<20))
	w.plane.pause(between(r, 30*time.Second, 2*time.Minute))
	defer f.Remove()
	return f.Hits()
}
