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

func holderOf(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

func durationOf(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}

// releaseDuration is the duration of a released Lease. client-go uses the same, so that electors
// that ignore the holder take the Lease soon.
const releaseDuration = time.Second

func released(l *coordinationv1.Lease) bool {
	return holderOf(l) == "" && durationOf(l) == releaseDuration
}

// held keeps the version, so the API server refuses the write if the Lease has changed.
func held(l *coordinationv1.Lease, by string, d time.Duration, at time.Time) *coordinationv1.Lease {
	l = l.DeepCopy()
	seconds, renewed := int32(d/time.Second), metav1.NewMicroTime(at) //nolint:gosec // see Validate
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &by, &seconds, &renewed
	return l
}

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

func givenUp(l *coordinationv1.Lease, at time.Time) *coordinationv1.Lease {
	l = held(l, "", releaseDuration, at)
	l.Spec.AcquireTime = l.Spec.RenewTime.DeepCopy()
	return l
}

// rival times the record of a Lease that another process holds, without a clock or a lock. Only the
// monotonic clock counts: a wall clock that is set, or a machine that sleeps, never shortens the
// wait.
type rival struct {
	// least is the minimum wait: the holder of a Lease whose duration was shortened by hand still
	// trusts it.
	least time.Duration
	seen  version
	// until is when the last record with a holder expires. It stays if the record is deleted, or
	// loses its holder other than by a release.
	until time.Duration
}

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

// see does not change the wait for a record of our own, even if it was put back by hand over a
// rival's.
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

// left is not positive if the Lease is free.
func (r *rival) left(now time.Duration) time.Duration { return r.until - now }

// authors recognizes the records of this process by the renew times that it has written, to the
// microsecond. Other processes may have the same identity. A write without an answer may be stored.
type authors struct {
	identity string
	times    []time.Time // of the last answered write and those after it
}

const maxUnanswered = 64

func (a *authors) wrote(at time.Time) {
	a.times = append(a.times, at)
	a.times = a.times[max(0, len(a.times)-maxUnanswered):]
}

// answered forgets earlier writes without an answer: they have an older version, so the API server
// refuses them.
func (a *authors) answered(at time.Time) { a.times = append(a.times[:0], at) }

// refused forgets a write: a record with the same time has another author.
func (a *authors) refused(at time.Time) {
	a.times = slices.DeleteFunc(a.times, at.Equal)
}

func (a *authors) mine(l *coordinationv1.Lease) bool {
	return l != nil && holderOf(l) == a.identity && l.Spec.RenewTime != nil && slices.ContainsFunc(a.times, l.Spec.RenewTime.Time.Equal)
}
