// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// holderOf returns who holds a Lease, "" if nobody does.
func holderOf(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// durationOf returns for how long a Lease says that it is held, 0 if it does not.
func durationOf(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}

// releaseDuration is what is left of a Lease that was released: one second, as client-go writes it, so that electors which do not
// look at the holder take it soon as well.
const releaseDuration = time.Second

// released says whether a Lease is as a holder leaves it that has stopped.
func released(l *coordinationv1.Lease) bool {
	return holderOf(l) == "" && durationOf(l) == releaseDuration
}

// held writes a holder and a duration into a copy of a Lease. What else it has, also in its metadata, stays, above all the
// version: the API server refuses the write if that is not the newest.
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
