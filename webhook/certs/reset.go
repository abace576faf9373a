// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import "time"

const (
	quickResets  = 3               // resets in a row that are undone at once
	longestDelay = 5 * time.Minute // of later ones
	resetsForget = 10 * time.Minute
)

// resets counts how often a target's bundles lost a CA in a row.
type resets struct {
	had   map[string]bool // the CAs at the last look that found all bundles in place
	lost  bool            // since then
	count int
	last  time.Time
}

// look records a target. want are the CAs that its bundles must have.
func (r *resets) look(o observed, want []authority, now time.Time) {
	if o.inPlace(want) {
		r.had, r.lost = map[string]bool{}, false
		for _, a := range want {
			r.had[a.id] = true
		}
		return
	}
	for _, a := range want {
		if r.had[a.id] && !o.has(a.id) && !r.lost {
			if now.Sub(r.last) > resetsForget+r.delay() {
				r.count = 0
			}
			r.lost, r.last = true, now
			r.count++
		}
	}
}

func (r *resets) delay() time.Duration {
	if r.count <= quickResets {
		return 0
	}
	return min(time.Second<<min(r.count-quickResets, 10), longestDelay)
}

// due is when the bundles may be restored.
func (r *resets) due() time.Time {
	if !r.lost {
		return time.Time{}
	}
	return r.last.Add(r.delay())
}
