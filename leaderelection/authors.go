// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/setpoint-dev/setpoint/internal/lease"
)

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
	return l != nil && lease.Holder(l) == a.identity && l.Spec.RenewTime != nil && slices.ContainsFunc(a.times, l.Spec.RenewTime.Time.Equal)
}
