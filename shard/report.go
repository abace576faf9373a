// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/internal/slots"
)

// reported is what the log and the hooks of this life know.
type reported struct {
	trouble  string
	waits    bool      // the trouble is that another process holds the group's Lease
	freed    time.Time // when it did not hold it any more
	valid    bool      // there was an assignment in this life
	lost     bool      // the member's Lease is
	unserved map[string]bool
	owned    map[slots.Slot]*tenancy
	before   *slots.Assignment // the newest one whose moves are recorded
	panicked bool              // a hook has
	failed   map[string]time.Time
}

const (
	// unservedAfter is the age at which the log mentions unserved slots: moves take less.
	unservedAfter = 5 * time.Second
	// mostReasons is how many reasons the log names until all slots are served again.
	mostReasons = 10
	// mostMoves is the length of Status.Moves.
	mostMoves = 50

	// failingEvery is the pause between equal lines about a request that fails each time.
	failingEvery = time.Minute

	unread = "the group's Lease could not be read yet"
)

// trouble logs why there is no assignment, once for each change.
func (l *life) trouble(err error) {
	of := l.group.lease
	waits := err != nil && of != nil && !held(of) && lease.Holder(of) != ""
	text := ""
	switch {
	case waits:
		text = lease.Holder(of) + " holds the group's Lease; the group waits until it is released"
	case err != nil:
		text = err.Error()
	}
	was := l.reported.trouble
	if text == was {
		return
	}
	if l.reported.waits && !waits {
		l.reported.freed = time.Now()
	}
	l.reported.trouble, l.reported.waits = text, waits
	switch {
	case text == "" && l.reported.valid:
		l.log.Info("the assignment of slots is valid again")
	case text == "":
		l.reported.valid = true
	case waits:
		l.log.Info("waiting until another process releases the group's Lease", "holder", lease.Holder(of))
	case errors.Is(err, slots.ErrSettings):
		l.log.Warn("the group refuses this replica, which stays a standby", "err", err)
	case l.reported.valid && !l.leaving:
		l.log.Warn("the assignment of slots is lost; all members stop, and make a new one", "err", err)
	}
}

// failing logs a failed request that is retried.
func (l *life) failing(msg string, args ...any) {
	if at, ok := l.reported.failed[msg]; ok && time.Since(at) < failingEvery {
		return
	}
	l.reported.failed[msg] = time.Now()
	l.log.Warn(msg, args...)
}

// report updates the status, logs slots that stay unserved, and calls the hooks.
func (l *life) report() {
	s := l.current()
	l.status.Store(s)
	l.logUnserved(s)
	l.tellSlots()
	tell(l, l.o.Hooks.Observed, s.observed(l.name, l.id.Name))
}

// ended reports that this process is no member any more.
func (l *life) ended() {
	was := l.Status()
	l.status.Store(&Status{Group: was.Group, UID: was.UID, Read: was.Read, Moves: was.Moves})
	tell(l, l.o.Hooks.Observed, hook.ShardGroup{Group: l.name})
}

func (l *life) current() *Status {
	s := &Status{Group: l.String(), Member: l.id.String(), Trouble: l.reported.trouble, Moves: l.Status().Moves}
	of := l.seen.look(l.name)
	if s.Read = of.version != 0; !s.Read {
		s.Trouble = unread
	}
	if of.lease != nil {
		s.UID = of.lease.UID
	}
	a, err := l.view.Assignment()
	if a != nil {
		s.Epoch = a.Epoch()
		l.describe(s, a)
		s.Moves = l.moves(s.Moves, a)
	}
	for _, slot := range slices.Sorted(maps.Keys(l.tenancies)) {
		if !l.tenancies[slot].Stopped() {
			s.Owned = append(s.Owned, int(slot))
		}
	}
	if !errors.Is(err, slots.ErrSettings) { // else the members know
		s.Unserved, s.First = l.unserved(s.Trouble), l.first(a)
	}
	s.Audit = l.audit()
	return s
}

func (l *life) describe(s *Status, a *slots.Assignment) {
	count := map[string]int{}
	for slot := range slots.Slots {
		of := a.Slot(slots.Slot(slot)) //nolint:gosec // less than Slots
		count[of.Owner.Name]++
		if of.To.Name != "" {
			s.Moving++
		}
	}
	for _, m := range a.Members() {
		of := MemberStatus{Name: m.Name, Weight: m.Weight, Leaving: m.Leaving, Slots: count[m.Name], Silent: l.pulse(m.ID).Silent}
		if seen := l.seen.look(m.Name).lease; seen != nil {
			of.Identity = lease.Holder(seen)
		}
		s.Members = append(s.Members, of)
	}
}

// first reports whether this member comes first of those that are alive and have seen the newest
// assignment. Without one, the replicas that wait for an assignment count.
func (l *life) first(a *slots.Assignment) bool {
	if a != nil {
		for _, m := range a.Members() {
			if p := l.pulse(m.ID); !m.Leaving && p.Silent.IsZero() && p.Seen > a.Epoch() {
				return m.ID == l.id
			}
		}
	}
	for _, of := range l.seen.members() {
		id := slots.ID{Name: of.Name, Term: shown(of).life}
		if id.Term != 0 && l.pulse(id).Silent.IsZero() {
			return id == l.id
		}
	}
	return false
}

// pulse is what the Lease of a member shows.
func (l *life) pulse(id slots.ID) slots.Pulse {
	if id == l.id {
		return slots.Pulse{Seen: l.saw.Load()}
	}
	of := l.seen.look(id.Name)
	n := shown(of.lease)
	p := slots.Pulse{Seen: n.seen}
	if n.life != id.Term || time.Since(of.at) > l.seen.least*2/3 {
		p.Silent = of.at
	}
	return p
}

// unserved groups the unserved slots by reason, oldest first. It adds the slots of this process
// that wait for the caches. Without an assignment, trouble is the reason.
func (l *life) unserved(trouble string) (all []Unserved) {
	at := map[string]int{}
	add := func(slot slots.Slot, since time.Time, reason string) {
		i, ok := at[reason]
		if !ok {
			i = len(all)
			at[reason] = i
			all = append(all, Unserved{Since: since, Reason: reason})
		}
		all[i].Slots = append(all[i].Slots, int(slot))
		if since.Before(all[i].Since) {
			all[i].Since = since
		}
	}
	for _, u := range l.view.Unserved(l.pulse) {
		if trouble != "" {
			u.Reason = trouble
			if u.Since.Before(l.reported.freed) { // the process that held the Lease has worked
				u.Since = l.reported.freed
			}
		}
		add(u.Slot, u.Since, u.Reason)
	}
	for _, slot := range slices.Sorted(maps.Keys(l.tenancies)) {
		t := l.tenancies[slot]
		waits := t.Waiting()
		for _, controller := range slices.Sorted(maps.Keys(waits)) {
			add(slot, t.began, fmt.Sprintf("controller %s waits: %s", controller, waits[controller]))
		}
	}
	slices.SortStableFunc(all, func(a, b Unserved) int { return a.Since.Compare(b.Since) })
	return all
}

// logUnserved logs each reason once, until all slots are served again.
func (l *life) logUnserved(s *Status) {
	logged := l.reported.unserved
	if len(s.Unserved) == 0 && len(logged) > 0 {
		clear(logged)
		l.log.Info("all slots are served again")
	}
	for _, u := range s.Unserved {
		age := time.Since(u.Since)
		known := l.reported.waits && u.Reason == s.Trouble // trouble has logged it
		if age <= unservedAfter || known || logged[u.Reason] || len(logged) >= mostReasons {
			continue
		}
		logged[u.Reason] = true
		l.log.Warn("slots are not served, so their keys wait",
			"count", len(u.Slots), "slots", u.Slots.String(), "for", age.Round(time.Second).String(), "because", u.Reason)
	}
}

// moves adds the changes since the last recorded assignment.
func (l *life) moves(all []Move, a *slots.Assignment) []Move {
	before := l.reported.before
	l.reported.before = a
	if before == nil || before.Epoch() == a.Epoch() {
		return all
	}
	type ends struct{ from, to slots.ID }
	at := map[ends]int{}
	now, known := time.Now(), len(all)
	all = slices.Clone(all)
	for i := range slots.Slots {
		slot := slots.Slot(i) //nolint:gosec // less than Slots
		of := ends{before.Slot(slot).Owner, a.Slot(slot).Owner}
		if of.from == of.to {
			continue
		}
		n, ok := at[of]
		if !ok {
			n = len(all)
			at[of] = n
			all = append(all, Move{At: now, From: of.from.Name, To: of.to.Name, Cause: cause(before, a, of.from)})
		}
		all[n].Slots = append(all[n].Slots, i)
	}
	if len(all) == known {
		return all
	}
	return all[max(0, len(all)-mostMoves):]
}

// cause is why slots of a member have another owner.
func cause(before, now *slots.Assignment, from slots.ID) string {
	leaving := func(a *slots.Assignment) bool {
		return slices.ContainsFunc(a.Members(), func(m slots.Member) bool { return m.ID == from && m.Leaving })
	}
	switch {
	case from == slots.ID{}:
		return "the slots had no owner"
	case leaving(before) || leaving(now):
		return "the owner leaves"
	case !now.Joined(from):
		return "the owner is no member any more"
	default:
		return "the members get equal parts"
	}
}

func (s *Status) observed(group, member string) hook.ShardGroup {
	all, since := s.UnservedSlots()
	o := hook.ShardGroup{
		Group: group, Member: member, Epoch: s.Epoch, Members: len(s.Members),
		Owned: len(s.Owned), Moving: s.Moving, Unserved: len(all), UnservedSince: since, First: s.First,
		Findings: len(s.Audit.Findings), FindingsSince: s.Audit.Since,
	}
	if len(s.Unserved) > 0 {
		o.Reason = s.Unserved[0].Reason
	}
	return o
}

// tellSlots reports the adoptions that have begun or stopped since the last call.
func (l *life) tellSlots() {
	adopted, released, lost := 0, 0, 0
	for slot, t := range l.reported.owned {
		switch {
		case !t.Stopped():
			continue
		case !l.reported.lost && l.holds(t):
			released++
		default:
			lost++
		}
		delete(l.reported.owned, slot)
	}
	for slot, t := range l.tenancies {
		if !t.Stopped() && l.reported.owned[slot] != t {
			l.reported.owned[slot] = t
			adopted++
		}
	}
	hooks := l.o.Hooks
	for _, of := range []struct {
		hook func(hook.ShardSlots)
		n    int
	}{{hooks.Released, released}, {hooks.Lost, lost}, {hooks.Adopted, adopted}} {
		if of.n > 0 {
			tell(l, of.hook, hook.ShardSlots{Group: l.name, Slots: of.n})
		}
	}
}

// tell calls a hook. If it panics, the moves of slots go on.
func tell[A any](l *life, f func(A), a A) {
	if f == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil && !l.reported.panicked {
			l.reported.panicked = true
			l.log.Error("a hook of the shard group has panicked; further panics are not logged", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	f(a)
}
