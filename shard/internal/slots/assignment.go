// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ID identifies one session of a member: the time for which a process holds the member's Lease.
type ID struct {
	// Name is the name of the Lease. A process that starts again under it is another session.
	Name string `json:"name"`
	// Term is the resourceVersion at which the process acquired the Lease. A session with a higher
	// Term on the same Lease proves that this one is over.
	Term uint64 `json:"term"`
}

// String returns name@term.
func (id ID) String() string { return id.Name + "@" + strconv.FormatUint(id.Term, 10) }

// Member is a member of a group.
type Member struct {
	ID
	// Weight is the member's part of the slots, in relation to other members: 1 to MaxWeight.
	Weight int `json:"weight"`
	// Leaving reports whether the member gives up all its slots. Join ignores it.
	Leaving bool `json:"leaving,omitempty"`
}

// Limits of an assignment.
const (
	// MaxMembers is the number of members. A further one could own no slot, and stays a standby.
	MaxMembers = Slots
	// MaxWeight limits Member.Weight.
	MaxWeight = 1000
	// MaxHandover is the size of one handover, in bytes.
	MaxHandover = 4 << 10
	// MaxSize is the size of an encoded assignment, in bytes.
	MaxSize = 160 << 10

	// maxHandovers is the size of all handovers, in bytes: the rest of MaxSize is for 256 members.
	maxHandovers = 60 << 10
)

// Handover describes what an owner wrote before it released slots.
type Handover struct {
	// Epoch identifies the release.
	Epoch uint64 `json:"epoch"`
	// From is the member that released.
	From ID `json:"from"`
	// Written describes its newest writes. The core does not read it.
	Written string `json:"written"`
}

// Assignment is the stored assignment of slots to members. It is immutable: each transition returns
// another one, or an error and no assignment. An error that names an older state means that another
// member was faster: read the assignment and decide again. Store the result by compare-and-swap on
// Version; several transitions in a row make one write.
//
// It is safe for concurrent use.
type Assignment struct {
	by      string
	version uint64 // of the record that it was read from
	epoch   uint64

	listed  bool // whether waiting is complete
	waiting []ID // sessions that may still act on an assignment before this one

	members   []Member // by name
	slots     [Slots]slot
	handovers []Handover // that a slot refers to, by epoch
}

// slot refers to members by their index, which none means without.
type slot struct {
	owner, to int16
	ready     bool     // to is
	epoch     uint64   // of the ownership
	since     int64    // in Unix ms: when it was acquired, began to drain or lost its owner
	after     []uint64 // the handovers that the owner must see first; never changed in place
}

const none = -1

// State describes one slot.
type State struct {
	// Owner is the only member that may act for the slot, or zero.
	Owner ID
	// Epoch identifies this ownership of the slot. Each ownership has a higher one.
	Epoch uint64
	// To is the member that the slot moves to, or zero.
	To ID
	// Draining reports that To is ready, so Owner takes no new key and releases the slot.
	Draining bool
	// Since is when the slot was acquired, began to drain or lost its owner, by the clock of the
	// member that wrote this.
	Since time.Time
	// After has the handovers that Owner must see in its caches before it takes a key.
	After []Handover
}

// Slot returns the state of a slot.
func (a *Assignment) Slot(s Slot) State {
	of := &a.slots[s]
	state := State{Epoch: of.epoch, Draining: of.ready, Since: time.UnixMilli(of.since)}
	if of.owner != none {
		state.Owner = a.members[of.owner].ID
	}
	if of.to != none {
		state.To = a.members[of.to].ID
	}
	for _, h := range a.handovers {
		if slices.Contains(of.after, h.Epoch) {
			state.After = append(state.After, h)
		}
	}
	return state
}

// All returns the slots in order.
func (a *Assignment) All() iter.Seq2[Slot, State] {
	return func(yield func(Slot, State) bool) {
		for i := range Slots {
			if s := Slot(i); !yield(s, a.Slot(s)) { //nolint:gosec // less than Slots
				return
			}
		}
	}
}

// Members returns the members, by name. You own the slice.
func (a *Assignment) Members() []Member { return slices.Clone(a.members) }

// Epoch returns the Version of the record that this assignment replaces. So it grows with each
// write, also when the stored object was deleted and created again.
func (a *Assignment) Epoch() uint64 { return a.epoch }

// Version returns the resourceVersion of the record that a transition started from. It is the
// precondition for storing the assignment. It is 0 if there was no record: create it.
func (a *Assignment) Version() uint64 { return a.version }

// Recovering reports whether slots wait until earlier owners have stopped for sure, and the
// sessions that may be such owners. Before [Assignment.Listed] they are unknown.
func (a *Assignment) Recovering() (waiting []ID, ok bool) {
	return slices.Clone(a.waiting), a.recovering()
}

func (a *Assignment) recovering() bool { return !a.listed || len(a.waiting) > 0 }

// Joined reports whether this session is a member.
func (a *Assignment) Joined(id ID) bool { return a.index(id) != none }

// index returns the place of this session among the members, or none.
func (a *Assignment) index(id ID) int16 {
	i, found := a.find(id.Name)
	if !found || a.members[i].ID != id {
		return none
	}
	return int16(i) //nolint:gosec // at most MaxMembers
}

func (a *Assignment) find(name string) (int, bool) {
	return slices.BinarySearchFunc(a.members, name, func(m Member, name string) int { return strings.Compare(m.Name, name) })
}

// next returns a copy for a transition.
func (a *Assignment) next() *Assignment {
	n := *a
	n.epoch = a.version
	n.members = slices.Clone(a.members)
	n.waiting = slices.Clone(a.waiting)
	n.handovers = slices.Clone(a.handovers)
	return &n
}

// member returns the index of a session that must be a member.
func (a *Assignment) member(what string, id ID) (int16, error) {
	if i := a.index(id); i != none {
		return i, nil
	}
	if i, found := a.find(id.Name); found {
		return none, fmt.Errorf("shard: %s by %s: the member is %s; a process with an older term must not act", what, id, a.members[i].ID)
	}
	return none, fmt.Errorf("shard: %s by %s: it is not a member; join first", what, id)
}

// remove removes a member that owns no slot, and all moves to it.
func (a *Assignment) remove(i int16) {
	a.members = slices.Delete(a.members, int(i), int(i)+1)
	for s := range a.slots {
		of := &a.slots[s]
		if of.to == i {
			of.cancel()
		}
		if of.owner > i {
			of.owner--
		}
		if of.to > i {
			of.to--
		}
	}
}

// cancel ends a move. The owner stays, and releases the slot if it has begun to drain it.
func (of *slot) cancel() { of.to, of.ready = none, false }

// assign gives a slot without an owner to a member.
func (a *Assignment) assign(of *slot, to int16, now time.Time) {
	of.cancel()
	of.owner, of.epoch, of.since = to, a.epoch, now.UnixMilli()
}

// forget drops handovers that no slot refers to.
func (a *Assignment) forget() {
	used := map[uint64]bool{}
	for s := range a.slots {
		for _, e := range a.slots[s].after {
			used[e] = true
		}
	}
	a.handovers = slices.DeleteFunc(a.handovers, func(h Handover) bool { return !used[h.Epoch] })
}
