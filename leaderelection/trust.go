// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
)

// instant is a moment by both clocks of a process, each counted from the same start. The monotonic one may stand still while a
// machine sleeps, the wall clock may be set.
type instant struct{ mono, wall time.Duration }

// hold is the arithmetic of a Lease that is ours: until when it may be taken as ours. It knows neither clock nor lock.
type hold struct {
	limit time.Duration // since a renewal was sent
	sent  instant       // the last one that succeeded
	over  bool
}

// lost says whether the last renewal was sent too long ago, by whichever clock says so first. It stays so, even if a clock is
// set back.
func (h *hold) lost(now instant) bool {
	h.over = h.over || now.mono-h.sent.mono >= h.limit || now.wall-h.sent.wall >= h.limit
	return h.over
}

// renew takes down that a request sent then has renewed the Lease.
func (h *hold) renew(sent instant) { h.sent = sent }

// rival is the arithmetic of waiting for a Lease that somebody else holds: since when its record has been still. Only the
// monotonic clock counts, so that a clock that is set, or a machine that sleeps, makes the wait longer and never shorter. It knows
// neither clock nor lock.
type rival struct {
	// least is what a held record counts for at least: a Lease whose duration was shortened by hand, or removed, does not
	// shorten the time for which its holder trusts it.
	least time.Duration
	seen  version
	// until is when the last record that had a holder is over. It survives that the record is deleted, or that its holder is
	// removed other than by a release: the holder does not know yet.
	until time.Duration
}

// version is one state of one Lease.
type version struct {
	uid      types.UID
	revision string
}

func versionOf(l *coordinationv1.Lease) version {
	if l == nil {
		return version{}
	}
	return version{l.UID, l.ResourceVersion}
}

// see takes down what the Lease is like, nil if there is none, as it was found not later than now. It says whether that is new. A
// record of our own neither makes the wait longer nor, put back by hand over that of a rival, shorter: what we did under it has ended.
func (r *rival) see(l *coordinationv1.Lease, mine bool, now time.Duration) (changed bool) {
	v := versionOf(l)
	changed, r.seen = v != r.seen, v
	switch {
	case !changed || l == nil || mine:
	case holderOf(l) != "":
		r.until = now + max(r.least, durationOf(l))
	case released(l):
		r.until = now
	}
	return changed
}

// left returns for how long the Lease must be left alone; not positive if it is free.
func (r *rival) left(now time.Duration) time.Duration { return r.until - now }

// authors tells what this process wrote from what others did, also those under the same identity: by the times, to the
// microsecond, that it has written. A write that was not answered may have been made.
type authors struct {
	identity string
	times    []time.Time // since the last one that was answered, that one included
}

// maxUnanswered is how many writes without an answer are remembered.
const maxUnanswered = 64

// wrote takes down that a record with this renew time is about to be sent.
func (a *authors) wrote(at time.Time) {
	a.times = append(a.times, at)
	a.times = a.times[max(0, len(a.times)-maxUnanswered):]
}

// answered takes down that it was stored. What was sent before and not answered carries an older version and comes too late.
func (a *authors) answered(at time.Time) { a.times = append(a.times[:0], at) }

// refused takes down that it was not stored, for sure: what is there was written by somebody else, even if at the same time.
func (a *authors) refused(at time.Time) {
	a.times = slices.DeleteFunc(a.times, at.Equal)
}

// mine says whether a record is one of ours.
func (a *authors) mine(l *coordinationv1.Lease) bool {
	return l != nil && holderOf(l) == a.identity && l.Spec.RenewTime != nil && slices.ContainsFunc(a.times, l.Spec.RenewTime.Time.Equal)
}
