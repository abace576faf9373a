// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"fmt"
	"time"
)

// Heartbeat is what the Lease of a member shows to other members.
type Heartbeat struct {
	// Silent is since when the Lease has not been renewed in time, or is held by another session.
	// It is zero if the member renews.
	Silent time.Time
	// Seen is the Version of the newest record that the member had seen at its last renewal.
	Seen uint64
}

// Unserved describes a slot for which no member acts, as far as this member knows.
type Unserved struct {
	Slot Slot
	// Since is when this began, by this member's clock.
	Since time.Time
	// Reason is a clause for logs and conditions.
	Reason string
}

// Unserved returns the slots without an owner that acts, by slot. heartbeat returns what the Lease
// of a member shows; nil means that all members are well.
//
// It includes slots that drain, because a Reconcile that hangs keeps its slot, and slots whose
// owner has not seen its ownership: it may renew its Lease without a working watch. So each move is
// reported for a moment; alert on the age.
//
// Only the owner knows, and reports, that it has stopped a slot and cannot store the release. It
// also knows that its caches do not show the handovers of a slot yet; add this to its report.
func (v *View) Unserved(heartbeat func(ID) Heartbeat) []Unserved {
	var all []Unserved
	for i := range Slots {
		s := Slot(i) //nolint:gosec // less than Slots
		if since, reason := v.unserved(s, heartbeat); reason != "" {
			all = append(all, Unserved{s, since, reason})
		}
	}
	return all
}

func (v *View) unserved(s Slot, heartbeat func(ID) Heartbeat) (time.Time, string) {
	if v.known == nil {
		return v.since, "there is no valid assignment"
	}
	of := &v.known.slots[s]
	since := time.UnixMilli(v.begun[s])
	if of.owner == none {
		return since, v.known.whyUnowned()
	}
	owner := v.known.members[of.owner].ID
	if owner == v.id && v.stopped[s] >= of.epoch {
		return time.UnixMilli(v.at[s]), "this member has stopped it, and has not stored the release"
	}
	if heartbeat != nil {
		p := heartbeat(owner)
		switch {
		case !p.Silent.IsZero():
			return p.Silent, fmt.Sprintf("its owner %s does not renew its Lease", owner)
		case p.Seen <= of.epoch:
			return since, fmt.Sprintf("its owner %s has not seen that it owns it", owner)
		}
	}
	if of.ready {
		return since, fmt.Sprintf("it drains: %s finishes its work before %s takes it over", owner, v.known.members[of.to].ID)
	}
	return time.Time{}, ""
}

func (a *Assignment) whyUnowned() string {
	switch {
	case !a.listed:
		return "a new assignment waits for a list of the members' Leases"
	case len(a.waiting) > 0:
		return fmt.Sprintf("a new assignment waits until %s acknowledges it or is dead", a.waiting[0])
	case len(a.members) == 0:
		return "the group has no members"
	}
	return "it has no owner yet"
}
