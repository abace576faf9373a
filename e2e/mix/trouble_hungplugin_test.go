// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"math/rand/v2"
	"slices"
	"time"
)

// hungPlugin makes requests hang that ignore their contexts, as an exec plugin does.
type hungPlugin struct{}

func (hungPlugin) name() string { return "hung plugin" }
func (hungPlugin) line() string { return "the lease " }

func (hungPlugin) strike(w *world, r *rand.Rand) int {
	one := w.some(r)
	if leader := w.leader(); leader != "" && leader != one.id { // it has the most to lose
		one = w.replicas[(slices.Index(w.replicas, one)+1)%len(w.replicas)]
	}
	p := one.plugin
	before := p.count()
	release := p.hang()
	w.plane.pause(between(r, 40*time.Second, 3*time.Minute))
	if leader := w.leader(); w.alone && leader == one.id {
		w.births.note("the replica %s still leads, although its requests hang", leader)
	}
	if w.alone && p.count() > before && !w.log.has(one.id, "the lease is lost") && !w.log.has(one.id, "the lease was not renewed") {
		w.births.note("the replica %s does not report that its requests hang", one.id)
	}
	release()
	return p.count() - before
}
