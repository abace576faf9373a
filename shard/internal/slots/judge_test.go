// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"fmt"
	"reflect"
	"slices"
	"time"
)

// judge knows everything.
type judge struct {
	w         *simulation
	err       error
	calmSince int64

	ended    [Slots]uint64 // the highest epoch of an ownership that has ended
	unserved [Slots]int64  // since when, or 0
	byOwner  [Slots]int64  // when its owner reported it last
	lastBy   [Slots]ID     // who wrote the objects of the slot last
	last     [Slots]uint64 // and the version
	unknown  [Slots]bool   // the last owner did not release the slot gracefully

	stats struct{ stores, conflicts, writes, refused, handovers, edits, moves, reports int }
}

func (j *judge) fail(guarantee, text string, args ...any) {
	if j.err == nil {
		j.err = fmt.Errorf("%s at %d ms, after %d changes: %s", guarantee, j.w.now, j.w.changes, fmt.Sprintf(text, args...))
	}
}

func (j *judge) edited() {
	j.stats.edits++
	for s := range j.unknown {
		j.unknown[s] = true // the owners of the lost assignment cannot hand over
	}
}

func (j *judge) roundTrip(n, want *Assignment) {
	text, err := n.Encode()
	if err != nil {
		return // no room: the driver tries again
	}
	got, err := Decode(settings, Record{Version: want.version, Manager: Manager, Text: text})
	if err != nil {
		j.fail("encoding", "%v", err)
		return
	}
	if again, err := got.Encode(); err != nil || again != text || !reflect.DeepEqual(got.slots, want.slots) && text != mustEncode(want) {
		j.fail("encoding", "it reads back as another assignment: %v", err)
	}
}

// stores compares an assignment with the one that it replaces.
func (j *judge) stores(a *Assignment) {
	j.stats.stores++
	if j.stats.stores%16 == 0 {
		if err := a.valid(); err != nil {
			j.fail("invariant", "%v", err)
		}
	}
	if b := j.w.record.a; b != nil {
		j.checkMoves(b, a)
		for s := range a.slots {
			x, y := &b.slots[s], &a.slots[s]
			if y.epoch != x.epoch || y.owner == none && x.owner != none {
				j.changesOwner(b, a, x, y, s)
			}
		}
	}
}

// changesOwner notes that an ownership of slot s ends or begins.
func (j *judge) changesOwner(b, a *Assignment, x, y *slot, s int) {
	if y.owner != none {
		j.unserved[s] = 0 // its next owner has time to begin
	}
	if x.owner == none {
		return
	}
	j.stats.moves++
	j.ended[s] = max(j.ended[s], x.epoch)
	if !a.Joined(b.members[x.owner].ID) && !slices.Contains(y.after, a.epoch) {
		j.unknown[s] = true // it is dead, and has not released the slot
	}
}

// checkMoves checks P6: a write without a change of members plans no move, and one with a change
// few. A restart is two changes.
func (j *judge) checkMoves(b, a *Assignment) {
	before, weights := b.planned()
	after, _ := a.planned()
	stay := 0
	for _, m := range b.members {
		if i := a.index(m.ID); !m.Leaving && i != none && !a.members[i].Leaving {
			stay++
		}
	}
	fewest, changed := max(1, stay), b.staying()-stay+a.staying()-stay
	if b.recovering() || !balanced(before, weights) {
		return
	}
	moves := map[string]int{}
	for s := range before {
		if before[s] != after[s] {
			moves[before[s]]++
			moves[after[s]]++
		}
	}
	for name, n := range moves {
		if limit := changed * ((Slots+fewest-1)/fewest + 1); n > limit && name != "" {
			j.fail("P6", "%d changes of %d members move %d slots from or to %s; the limit is %d", changed, fewest, n, name, limit)
		}
	}
}

func (a *Assignment) staying() int {
	_, weights := a.planned()
	return len(weights)
}

func balanced(owners Owners, weights map[string]int) bool {
	count, sum := map[string]int{}, 0
	for _, name := range owners {
		count[name]++
	}
	for _, w := range weights {
		sum += w
	}
	for name, w := range weights {
		if n := count[name]; n*sum > Slots*w+sum-1 || n*sum < Slots*w-sum+1 {
			return false
		}
	}
	return sum > 0 && count[""] == 0
}

// saw checks P1 after the fence of a process may have opened: no other fence is open for its slots.
func (j *judge) saw(p *process) {
	for _, q := range j.w.all() {
		if q == p || !q.trusted() || !p.trusted() {
			continue
		}
		for s := range Slots {
			if p.open(Slot(s)) && q.open(Slot(s)) {
				j.fail("P1", "the fences of %s and %s are open for slot %d", p.id, q.id, s)
			}
		}
	}
}

// begins checks P1 and P4 when a Reconcile starts.
func (j *judge) begins(p *process, r *reconcile) {
	for _, q := range j.w.all() {
		for _, other := range q.running {
			if q != p && q.trusted() && other.slot == r.slot {
				j.fail("P1", "%s reconciles slot %d while %s does", p.id, r.slot, q.id)
			}
		}
	}
	if j.lastBy[r.slot] != p.id && j.last[r.slot] != 0 && !j.unknown[r.slot] {
		j.stats.handovers++
		if p.shows < j.last[r.slot] {
			j.fail("P4", "%s begins slot %d and sees %d, but %s wrote %d", p.id, r.slot, p.shows, j.lastBy[r.slot], j.last[r.slot])
		}
	}
}

// passes checks P5 for a write that passed the fence.
func (j *judge) passes(p *process, r *reconcile) {
	j.stats.writes++
	if r.epoch <= j.ended[r.slot] {
		j.fail("P5", "%s writes slot %d under epoch %d; epoch %d has ended", p.id, r.slot, r.epoch, j.ended[r.slot])
	}
	a := j.w.record.a // without it, or under another one, the owner cannot hand over any more
	j.last[r.slot], j.lastBy[r.slot] = j.w.data, p.id
	j.unknown[r.slot] = a == nil || a.slots[r.slot].epoch != r.epoch
}

// inspect checks P2 every second: each slot has an owner that acts, or its owner or all members
// without a fault report it.
func (w *simulation) inspect() {
	w.after(1000, w.inspect)
	j := &w.judge
	served := [Slots]bool{}
	for _, p := range w.all() {
		for s := range Slots {
			served[s] = served[s] || p.serves() && p.open(Slot(s))
		}
	}
	missing := false
	for s := range served {
		if served[s] {
			j.unserved[s] = 0
		} else if j.unserved[s] == 0 {
			j.unserved[s] = w.now
		}
		missing = missing || j.unserved[s] != 0 && w.now-j.unserved[s] > noticed
	}
	for _, p := range w.all() {
		if missing && p.acts() && w.now-max(p.awoke, p.mended, p.began) > calm {
			j.checkReport(p)
		}
	}
}

// serves notes that the slots of a process are served at this moment, if only for this moment.
func (j *judge) serves(p *process) {
	for s := range j.unserved {
		if j.unserved[s] != 0 && p.open(Slot(s)) {
			j.unserved[s] = 0
		}
	}
}

func (j *judge) checkReport(p *process) {
	reported := p.reports()
	for s, since := range j.unserved {
		if since == 0 || j.w.now-since <= noticed {
			continue
		}
		j.stats.reports++
		if a := p.view.known; a != nil && a.slots[s].owner != none {
			owner := j.w.members[a.members[a.slots[s].owner].Name]
			if owner != nil && owner.serves() && owner.reports()[s] {
				j.byOwner[s] = j.w.now // if it dies now, others notice this later
			}
		}
		if !reported[s] && j.w.now-j.byOwner[s] > noticed && (j.w.now-since > calm || j.silent(p, s, since)) {
			j.fail("P2", "%s does not report slot %d, which is unserved since %d ms: %+v", p.id, s, since, p.view.known.Slot(Slot(s)))
		}
	}
}

// silent reports whether a process must have noticed that the owner is silent: it has the newest
// record, and no renewal of the owner arrived for some time, not even a late one.
func (j *judge) silent(p *process, s int, since int64) bool {
	a := j.w.record.a
	if a == nil || p.view.version != j.w.record.version || a.slots[s].owner == none {
		return false
	}
	l := j.w.leases[a.members[a.slots[s].owner].Name]
	return j.w.now-max(since, l.changed) > noticed
}

// reports returns the slots that a process reports as unserved.
func (p *process) reports() (reported [Slots]bool) {
	for _, u := range p.view.Unserved(p.heartbeat) {
		reported[u.Slot] = true
		if age := p.wall().Sub(u.Since); u.Reason == "" || age < -time.Hour || age > 2*time.Hour {
			p.w.judge.fail("P2", "%s reports slot %d with the age %s: %s", p.id, u.Slot, age, u.Reason)
		}
	}
	return reported
}

// atTheEnd checks that without faults everything is served and in balance.
func (j *judge) atTheEnd() {
	a := j.w.record.a
	if a == nil || a.recovering() {
		j.fail("P2", "without faults, the group does not recover: %v %+v", j.w.record.err, a)
		return
	}
	want, weights := a.planned()
	for s := range Slots {
		at := a.Slot(Slot(s))
		p := j.w.members[at.Owner.Name]
		if p == nil || !p.acts() || p.id != at.Owner || !p.open(Slot(s)) || at.To != (ID{}) || want[s] != at.Owner.Name {
			j.fail("P2", "without faults, slot %d is not served: %+v", s, at)
			return
		}
	}
	if len(weights) != j.w.count() || !balanced(want, weights) {
		j.fail("P6", "without faults, %d members are not in balance: %v", j.w.count(), weights)
	}
}
