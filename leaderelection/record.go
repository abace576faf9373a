// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"math"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// holderOf returns the holder of a Lease, "" for none.
func holderOf(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// durationOf returns how long a Lease is held, 0 if it has no duration.
func durationOf(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}

// releaseDuration is the duration of a Lease that was released: one second, as client-go writes it,
// so that electors which ignore the holder take it soon as well.
const releaseDuration = time.Second

// released reports whether the holder of a Lease has released it.
func released(l *coordinationv1.Lease) bool {
	return holderOf(l) == "" && durationOf(l) == releaseDuration
}

// held writes a holder and a duration into a copy of a Lease. All else stays, also the version: the
// API server refuses the write if that is not the newest.
func held(l *coordinationv1.Lease, by string, d time.Duration, at time.Time) *coordinationv1.Lease {
	l = l.DeepCopy()
	seconds, renewed := int32(d/time.Second), metav1.NewMicroTime(at) //nolint:gosec // Validate has seen to it
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &by, &seconds, &renewed
	return l
}

// acquired is the Lease as its new holder writes it.
func acquired(l *coordinationv1.Lease, by string, d time.Duration, at time.Time) *coordinationv1.Lease {
	before, transitions := holderOf(l), int32(0)
	if n := l.Spec.LeaseTransitions; n != nil && *n >= 0 && *n < math.MaxInt32 {
		transitions = *n
	}
	if before != by && l.UID != "" {
		transitions++
	}
	l = held(l, by, d, at)
	l.Spec.AcquireTime, l.Spec.LeaseTransitions = l.Spec.RenewTime.DeepCopy(), &transitions
	return l
}

// givenUp is the Lease as it is written at a release.
func givenUp(l *coordinationv1.Lease, at time.Time) *coordinationv1.Lease {
	l = held(l, "", releaseDuration, at)
	l.Spec.AcquireTime = l.Spec.RenewTime.DeepCopy()
	return l
}

// rival is the arithmetic of waiting for a Lease that another process holds: since when its record
// has been still. Only the monotonic clock counts, so that a clock that is set, or a machine that
// sleeps, makes the wait longer and never shorter. It knows neither clock nor lock.
type rival struct {
	// least is the shortest time for which a held record counts: a Lease whose duration was
	// shortened by hand, or removed, does not shorten the time for which its holder trusts it.
	least time.Duration
	seen  version
	// until is when the last record that had a holder expires. It survives that the record is
	// deleted, or that its holder is removed other than by a release: the holder does not know yet.
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

// see notes the Lease, nil if there is none, as it was found not later than now. It reports whether
// it changed. A record of our own neither makes the wait longer nor, put back by hand over that of
// a rival, shorter: what we did under it has ended.
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

// authors distinguishes the records that this process wrote from those of others, also under the
// same identity, by the renew times, to the microsecond, that it has written. A write that was not
// answered may have been stored.
type authors struct {
	identity string
	times    []time.Time // since the last one that was answered, that one included
}

// maxUnanswered is how many writes without an answer are remembered.
const maxUnanswered = 64

// wrote notes that a record with this renew time is about to be sent.
func (a *authors) wrote(at time.Time) {
	a.times = append(a.times, at)
	a.times = a.times[max(0, len(a.times)-maxUnanswered):]
}

// answered notes that it was stored. Earlier writes without an answer carry an older version and
// come too late.
func (a *authors) answered(at time.Time) { a.times = append(a.times[:0], at) }

// refused notes that it was not stored: what is there has another author, even with the same time.
func (a *authors) refused(at time.Time) {
	a.times = slices.DeleteFunc(a.times, at.Equal)
}

// mine reports whether a record is one of ours.
func (a *authors) mine(l *coordinationv1.Lease) bool {
	return l != nil && holderOf(l) == a.identity && l.Spec.RenewTime != nil && slices.ContainsFunc(a.times, l.Spec.RenewTime.Time.Equal)
}
