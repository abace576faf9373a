// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"slices"
	"time"
)

const (
	quickResets  = 3               // resets in a row that are undone at once
	longestDelay = 5 * time.Minute // of later ones
	resetsForget = 10 * time.Minute
)

// resets counts in a row the writes of an object that did not last: it lost a CA that it had, or
// the look after a write finds it not in place.
type resets struct {
	had     []authority // the CAs at the last look that found it in place
	lost    bool        // since then it lost one of them
	wrote   bool        // since the last look
	pending bool        // the next write is for a reset
	count   int
	last    time.Time
}

// look records an object. want are the CAs that it must have. has reports whether it has a CA.
func (r *resets) look(inPlace bool, want []authority, has func(authority) bool, now time.Time) {
	if inPlace {
		r.had, r.lost, r.wrote, r.pending = want, false, false, false
		return
	}
	lost := r.lost || slices.ContainsFunc(r.had, func(a authority) bool { return find(want, a.id) >= 0 && !has(a) })
	if r.wrote || lost && !r.lost {
		if now.Sub(r.last) > resetsForget+r.delay() {
			r.count = 0
		}
		r.last, r.pending = now, true
		r.count++
	}
	r.lost, r.wrote = lost, false
}

func (r *resets) delay() time.Duration {
	if r.count <= quickResets {
		return 0
	}
	return min(time.Second<<min(r.count-quickResets, 10), longestDelay)
}

// due is when the object may be written.
func (r *resets) due() time.Time {
	if !r.pending {
		return time.Time{}
	}
	return r.last.Add(r.delay())
}
