// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package lease has the rules for the records of Leases: who holds one, for how long, and when
// another process may acquire it.
package lease

import (
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// GroupLabel is the label of the Leases of a shard group's members, whose names are random.
const GroupLabel = "setpoint.dev/shard-group"

// Holder returns the identity of the holder, or "".
func Holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// Duration returns how long the record lasts without a renewal, or 0.
func Duration(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}

// releaseDuration is the duration of a released Lease. client-go uses the same, so that electors
// that ignore the holder take the Lease soon.
const releaseDuration = time.Second

// Released reports whether the holder has released the Lease. A Lease without a holder may also be
// one that a person has edited.
func Released(l *coordinationv1.Lease) bool {
	return Holder(l) == "" && Duration(l) == releaseDuration
}

// Held returns a copy that by has renewed at a time. It keeps the version, so the API server
// refuses the write if the Lease has changed. d is in whole seconds.
func Held(l *coordinationv1.Lease, by string, d time.Duration, at time.Time) *coordinationv1.Lease {
	l = l.DeepCopy()
	seconds, renewed := int32(d/time.Second), metav1.NewMicroTime(at) //nolint:gosec // the duration fits
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &by, &seconds, &renewed
	return l
}

// Acquired is like Held, for an acquisition. The Lease may be new: then it has no UID.
func Acquired(l *coordinationv1.Lease, by string, d time.Duration, at time.Time) *coordinationv1.Lease {
	before, transitions := Holder(l), int32(0)
	if n := l.Spec.LeaseTransitions; n != nil && *n >= 0 && *n < math.MaxInt32 {
		transitions = *n
	}
	if before != by && l.UID != "" {
		transitions++
	}
	l = Held(l, by, d, at)
	l.Spec.AcquireTime, l.Spec.LeaseTransitions = l.Spec.RenewTime.DeepCopy(), &transitions
	return l
}

// GivenUp returns a released copy, with the version.
func GivenUp(l *coordinationv1.Lease, at time.Time) *coordinationv1.Lease {
	l = Held(l, "", releaseDuration, at)
	l.Spec.AcquireTime = l.Spec.RenewTime.DeepCopy()
	return l
}

// NoLimit is the duration of a Lease that is held without a time limit, as by package shard. Such a
// Lease may be deleted by hand: then the usual wait begins.
const NoLimit = math.MaxInt32 * time.Second

// Rival times the record of a Lease that another process holds, without a clock or a lock. Only the
// monotonic clock counts: a wall clock that is set, or a machine that sleeps, never shortens the
// wait.
type Rival struct {
	// Least is the minimum wait: the holder of a Lease whose duration was shortened by hand still
	// trusts it.
	Least time.Duration
	// Known reports whether another process may have held the Lease since this process began to
	// follow it: See has found a record of it, or you set Known. If the Lease is missing now, that
	// process may have renewed it unseen, until it was deleted. A new one must then be held for
	// Lasts before its holder may trust it.
	Known bool

	seen Version
	// until is when the last record with a holder expires. It stays if a record with a limit is
	// deleted.
	until time.Duration
	lasts time.Duration // of the last record with a holder
}

// Version identifies a record of a Lease. The zero Version means that there is none.
type Version struct {
	uid      types.UID
	revision string
}

// VersionOf accepts nil.
func VersionOf(l *coordinationv1.Lease) Version {
	if l == nil {
		return Version{}
	}
	return Version{l.UID, l.ResourceVersion}
}

// See records the Lease, or nil if there is none, at a time of the monotonic clock. It reports
// whether the record is another one than before. A record of this process (mine) does not change
// the wait, even if it was put back by hand over a rival's.
func (r *Rival) See(l *coordinationv1.Lease, mine bool, now time.Duration) (changed bool) {
	v := VersionOf(l)
	changed, r.seen = v != r.seen, v
	known := r.Known
	r.Known = known || l != nil && !mine
	switch {
	case !changed || mine:
	case l != nil && Holder(l) != "":
		r.lasts = max(r.Least, Duration(l))
		r.until = now + r.lasts
	case l != nil && Released(l), l == nil && r.lasts >= NoLimit:
		r.until = now
	case l != nil && known: // its holder may have renewed it unseen
		r.until = now + r.Lasts()
	}
	return changed
}

// Lasts returns how long a record like the last one with a holder is respected, at least Least.
func (r *Rival) Lasts() time.Duration {
	if r.lasts >= NoLimit {
		return r.Least
	}
	return max(r.Least, r.lasts)
}

// Left returns the time until the Lease is free. It is not positive if the Lease is free now. Only
// the record that See has recorded last may be acquired, with its version.
func (r *Rival) Left(now time.Duration) time.Duration { return r.until - now }
