// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"errors"
	"slices"
	"time"
)

// View is what one session of a member knows. It decides what the member may do. A new session
// needs a new View. It is not safe for concurrent use.
type View struct {
	id      ID
	by      string // the name of the hash
	version uint64 // of the newest record
	known   *Assignment
	err     error         // why known is nil
	since   time.Time     // of err
	stopped [Slots]uint64 // the epoch of the ownership that Stop has ended
	at      [Slots]int64  // when it has, in Unix ms
	begun   [Slots]int64  // when the state of the slot began, in Unix ms
}

// maxSkew is how long before it is seen a change can have happened. If it seems to be longer ago,
// the wall clock of its writer is wrong.
const maxSkew = time.Minute

// NewView returns the view of a member that has seen nothing and owns nothing. now is used for
// reports only.
func NewView(id ID, by string, now time.Time) *View {
	return &View{id: id, by: by, err: errors.New("shard: the assignment is not read yet"), since: now}
}

// See takes a record from a read or a watch, in any order: a record that is older than another one
// is ignored. now is used for reports only.
//
// It returns why the newest record is no assignment: see [Decode]. Until there is a new one, the
// member owns nothing.
func (v *View) See(r Record, now time.Time) error {
	a, err := Decode(v.by, r)
	return v.see(r.Version, a, err, now)
}

func (v *View) see(version uint64, a *Assignment, err error, now time.Time) error {
	if version <= v.version {
		return v.err
	}
	if err != nil && v.err == nil {
		v.since = now
	}
	if a != nil {
		v.date(a, now.UnixMilli())
	}
	v.version, v.known, v.err = version, a, err
	return err
}

// date notes when the states of slots began, by the clock of this member. Only a new view believes
// what another member wrote.
func (v *View) date(a *Assignment, now int64) {
	for s := range a.slots {
		of := &a.slots[s]
		if v.known != nil {
			if was := &v.known.slots[s]; was.since == of.since && was.epoch == of.epoch && was.ready == of.ready {
				continue
			}
		}
		v.begun[s] = of.since
		if late := now - of.since; late < 0 || late > maxSkew.Milliseconds() && v.version > 0 {
			v.begun[s] = now
		}
	}
}

// Assignment returns the newest assignment, or nil and the reason.
func (v *View) Assignment() (*Assignment, error) { return v.known, v.err }

// Owns reports whether the member may act for a slot under the ownership with this epoch: its
// newest assignment says so, and Stop has not ended it. The fence asks it for each write, and also
// whether the term of the member's Lease is still trusted: both must hold.
//
// An old view is safe, because only the owner releases a slot while it is alive.
func (v *View) Owns(s Slot, epoch uint64) bool {
	if v.known == nil || v.stopped[s] >= epoch {
		return false
	}
	of := &v.known.slots[s]
	return of.owner != none && v.known.members[of.owner].ID == v.id && of.epoch == epoch
}

// Stop ends the member's ownership of slots for good, so that it can release them. A release whose
// answer was lost must be repeated, not taken back. now is used for reports only.
func (v *View) Stop(now time.Time, slots ...Slot) {
	for _, s := range slots {
		if v.known != nil && v.stopped[s] < v.known.slots[s].epoch {
			v.stopped[s], v.at[s] = v.known.slots[s].epoch, now.UnixMilli()
		}
	}
}

// Tasks lists what the newest assignment asks of a member.
type Tasks struct {
	// Join: it is not a member.
	Join bool
	// List: the assignment waits for a list of the group's Leases ([Assignment.Listed]).
	List bool
	// Acknowledge: the assignment waits for it.
	Acknowledge bool
	// Prepare are the slots that move to it, and are not ready.
	Prepare []Slot
	// Drain are its slots to stop, because their next owners are ready.
	Drain []Slot
	// Release are its stopped slots, to be released when no work of them runs.
	Release []Slot
	// Owned are the slots for which it may act.
	Owned []Slot
}

// Tasks returns what the member has to do. It is empty without an assignment.
func (v *View) Tasks() Tasks {
	t := Tasks{}
	if v.known == nil {
		return t
	}
	self := v.known.index(v.id)
	t.Join, t.List, t.Acknowledge = self == none, !v.known.listed, slices.Contains(v.known.waiting, v.id)
	for i := range v.known.slots {
		of, s := &v.known.slots[i], Slot(i) //nolint:gosec // less than Slots
		switch {
		case self == none:
		case v.Owns(s, of.epoch):
			t.Owned = append(t.Owned, s)
			if of.ready {
				t.Drain = append(t.Drain, s)
			}
		case of.owner == self:
			t.Release = append(t.Release, s)
		case of.to == self && !of.ready:
			t.Prepare = append(t.Prepare, s)
		}
	}
	return t
}
