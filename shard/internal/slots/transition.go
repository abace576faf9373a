// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"fmt"
	"slices"
	"time"
)

// New returns the assignment to store where there is none, or where See reported [ErrInvalid]:
// it has no members, and each slot is without an owner since now. r is the record to replace.
//
// Earlier owners may not have noticed. So no slot gets an owner before [Assignment.Listed], and
// before every session listed there has acknowledged or is dead.
func New(by string, r Record, now time.Time) *Assignment {
	a := &Assignment{by: by, version: r.Version, epoch: r.Version}
	if r.Missing {
		a.version = 0
	}
	for s := range a.slots {
		a.slots[s] = slot{owner: none, to: none, since: now.UnixMilli()}
	}
	return a
}

// Listed records the sessions that may act on an earlier assignment: those whose Lease was held,
// and showed their Term, in a list of the group's Leases. The list must have been made after New's
// assignment was stored; version is its resourceVersion.
func (a *Assignment) Listed(version uint64, held ...ID) (*Assignment, error) {
	if a.listed {
		return nil, fmt.Errorf("shard: listed twice: the assignment is not new any more; read it again")
	}
	if version < a.version || a.version == 0 {
		return nil, fmt.Errorf("shard: the Leases were listed at %d, before the assignment was stored at %d; list them again", version, a.version)
	}
	n := a.next()
	n.listed = true
	for _, id := range held {
		if n.index(id) == none && !slices.Contains(n.waiting, id) {
			n.waiting = append(n.waiting, id)
		}
	}
	return n, nil
}

// Acknowledge records that this session has seen the assignment, that its fence is closed for all
// earlier ones, and that no work of it runs.
func (a *Assignment) Acknowledge(id ID) (*Assignment, error) {
	if !slices.Contains(a.waiting, id) {
		return nil, fmt.Errorf("shard: acknowledged by %s: the assignment does not wait for it; read it again", id)
	}
	n := a.next()
	n.waiting = slices.DeleteFunc(n.waiting, func(w ID) bool { return w == id })
	return n, nil
}

// Join adds a member. It must be warm, its Lease must show its Term, and no work of it may run. An
// earlier session under this name is dead: m.ID proves it. Call Propose next.
func (a *Assignment) Join(m Member, now time.Time) (*Assignment, error) {
	if m.Weight < 1 || m.Weight > MaxWeight {
		return nil, fmt.Errorf("shard: %s joins: Weight is %d; set 1 to %d", m.ID, m.Weight, MaxWeight)
	}
	if m.Name == "" || m.Term == 0 {
		return nil, fmt.Errorf("shard: %q joins without a name or a term; acquire its Lease first", m.ID)
	}
	i, found := a.find(m.Name)
	switch {
	case found && a.members[i].Term >= m.Term:
		return nil, fmt.Errorf("shard: %s joins: the member is %s already; read the assignment again", m.ID, a.members[i].ID)
	case !found && len(a.members) >= MaxMembers:
		return nil, fmt.Errorf("shard: %s joins: the group has %d members and no slot for another one; reduce the replicas", m.ID, MaxMembers)
	}
	n := a.next()
	n.evict(m.ID, now)
	n.waiting = slices.DeleteFunc(n.waiting, func(w ID) bool { return w == m.ID })
	m.Leaving = false
	i, _ = n.find(m.Name)
	n.insert(i, m)
	return n, nil
}

func (a *Assignment) insert(i int, m Member) {
	a.members = slices.Insert(a.members, i, m)
	for s := range a.slots {
		of := &a.slots[s]
		if int(of.owner) >= i {
			of.owner++
		}
		if int(of.to) >= i {
			of.to++
		}
	}
}

// Dead removes the sessions under proof.Name that are older than proof. A process must have
// acquired that member's Lease at proof.Term, by the rules of package leaderelection: the caller to
// prove the death, or a restarted member whose Lease shows the Term. Then no older session passes
// its fence. Their slots go to their next owners, or are without an owner since the given time:
// when the caller saw the Lease change last. Call Propose next.
func (a *Assignment) Dead(proof ID, since time.Time) (*Assignment, error) {
	n := a.next()
	if !n.evict(proof, since) {
		return nil, fmt.Errorf("shard: %s proves no death: no older session under this name is a member; read the assignment again", proof)
	}
	return n, nil
}

// evict removes older sessions of a name, and reports whether there were any.
func (a *Assignment) evict(proof ID, since time.Time) bool {
	older := func(id ID) bool { return id.Name == proof.Name && id.Term < proof.Term }
	before := len(a.waiting)
	a.waiting = slices.DeleteFunc(a.waiting, older)
	i, found := a.find(proof.Name)
	if !found || !older(a.members[i].ID) {
		return len(a.waiting) < before
	}
	for s := range a.slots {
		if of := &a.slots[s]; int(of.owner) == i {
			a.vacate(of, since)
		}
	}
	a.remove(int16(i)) //nolint:gosec // at most MaxMembers
	return true
}

// vacate ends the ownership of a slot.
func (a *Assignment) vacate(of *slot, now time.Time) {
	if of.to != none {
		a.assign(of, of.to, now)
		return
	}
	of.owner, of.since = none, now.UnixMilli()
}

// Propose gives slots without an owner to members, and starts the moves toward [Desired]. It
// returns a itself if there is nothing to do. A slot that drains completes its move first, unless
// its next owner leaves.
func (a *Assignment) Propose(now time.Time) *Assignment {
	if a.recovering() {
		return a
	}
	n := a
	for s, name := range Desired(a.planned()) {
		i, found := a.find(name)
		if !found || a.slots[s].settled(a, int16(i)) { //nolint:gosec // at most MaxMembers
			continue
		}
		if n == a {
			n = a.next()
		}
		n.plan(&n.slots[s], int16(i), now) //nolint:gosec // at most MaxMembers
	}
	return n
}

// planned returns the owners after all moves, and the weights of the members that stay.
func (a *Assignment) planned() (Owners, map[string]int) {
	planned, weights := Owners{}, map[string]int{}
	for _, m := range a.members {
		if !m.Leaving {
			weights[m.Name] = m.Weight
		}
	}
	for s := range a.slots {
		of := &a.slots[s]
		switch {
		case of.to != none && !a.members[of.to].Leaving:
			planned[s] = a.members[of.to].Name
		case of.owner != none:
			planned[s] = a.members[of.owner].Name
		}
	}
	return planned, weights
}

// settled reports whether the slot belongs or moves to this member, or drains to one that stays.
func (of *slot) settled(a *Assignment, to int16) bool {
	drains := of.ready && !a.members[of.to].Leaving
	return drains || of.to == to || of.owner == to && of.to == none
}

// plan directs a slot to a member.
func (a *Assignment) plan(of *slot, to int16, now time.Time) {
	switch of.owner {
	case none:
		a.assign(of, to, now)
	case to:
		of.cancel()
	default:
		of.to, of.ready = to, false
	}
}

// Ready records that a member has prepared slots that move to it: their owners drain them now.
func (a *Assignment) Ready(id ID, now time.Time, slots ...Slot) (*Assignment, error) {
	i, err := a.member("ready", id)
	if err != nil {
		return nil, err
	}
	n := a.next()
	for _, s := range slots {
		of := &n.slots[s]
		if of.to != i {
			return nil, fmt.Errorf("shard: ready by %s: slot %d does not move to it; read the assignment again", id, s)
		}
		if !of.ready {
			of.ready, of.since = true, now.UnixMilli()
		}
	}
	return n, nil
}

// Release gives up slots that the view's member has stopped ([View.Stop]). No work of these slots
// may run any more. Each goes to its next owner. A slot whose move was cancelled comes back to the
// owner, as another ownership; if the owner leaves, it has no owner since now.
//
// written describes the owner's newest writes for the next owner; "" means that there are none.
// Release all slots of one write in one call.
//
// Release fails if there is no room for written until other members call Settle. The slots then
// stay with the owner.
func (a *Assignment) Release(v *View, written string, now time.Time, slots ...Slot) (*Assignment, error) {
	i, err := a.member("release", v.id)
	if err != nil {
		return nil, err
	}
	n := a.next()
	for _, s := range slots {
		of := &n.slots[s]
		if of.owner != i {
			return nil, fmt.Errorf("shard: release by %s: it does not own slot %d; read the assignment again", v.id, s)
		}
		if v.stopped[s] < of.epoch {
			return nil, fmt.Errorf("shard: release by %s: its fence is open for slot %d; call Stop, and wait until its work has returned", v.id, s)
		}
		if written != "" {
			of.after = append(slices.Clip(of.after), n.epoch)
		}
		if of.to == none && !n.members[i].Leaving {
			n.assign(of, i, now) // its move was cancelled meanwhile
		} else {
			n.vacate(of, now)
		}
	}
	if written == "" || len(slots) == 0 {
		return n, nil
	}
	if err := n.handOver(Handover{Epoch: n.epoch, From: v.id, Written: written}); err != nil {
		return nil, err
	}
	return n, nil
}

// Room returns how many bytes of newest writes the assignment has room for.
func (a *Assignment) Room() int {
	left := maxHandovers
	for _, h := range a.handovers {
		left -= len(h.Written)
	}
	return left
}

func (a *Assignment) handOver(h Handover) error {
	if slices.ContainsFunc(a.handovers, func(other Handover) bool { return other.Epoch == h.Epoch }) {
		return fmt.Errorf("shard: release by %s: a second release in one write; release all slots in one call", h.From)
	}
	if len(h.Written) > min(MaxHandover, a.Room()) {
		return fmt.Errorf("shard: release by %s: %d bytes of newest writes have no room (each %d, all %d); shorten them, or wait until others settle",
			h.From, len(h.Written), MaxHandover, maxHandovers)
	}
	a.handovers = append(a.handovers, h)
	return nil
}

// Settle drops the handovers of slots, because no later owner needs them: wait some time, such as a
// minute, after the owner's caches show them. An owner that releases a slot sooner passes them on.
func (a *Assignment) Settle(id ID, slots ...Slot) (*Assignment, error) {
	i, err := a.member("settle", id)
	if err != nil {
		return nil, err
	}
	n := a.next()
	for _, s := range slots {
		if n.slots[s].owner != i {
			return nil, fmt.Errorf("shard: settle by %s: it does not own slot %d; read the assignment again", id, s)
		}
		n.slots[s].after = nil
	}
	n.forget()
	return n, nil
}

// Leave marks a member that gives up its slots, or removes it if it has none. Call Propose next,
// and Leave again after the last release.
func (a *Assignment) Leave(id ID) (*Assignment, error) {
	i, err := a.member("leave", id)
	if err != nil {
		return nil, err
	}
	n := a.next()
	n.members[i].Leaving = true
	if !slices.ContainsFunc(n.slots[:], func(of slot) bool { return of.owner == i }) {
		n.remove(i)
	}
	return n, nil
}
