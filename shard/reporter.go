// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/shard/internal/slots"
)

// reporter publishes the state of a session: as Status, in the log and to the observers. Only the
// session's goroutine uses it.
type reporter struct {
	m *member

	ownership *ownership
	lost      bool                       // the member's Lease is
	why       string                     // there is no assignment
	waits     bool                       // because another process holds the group's Lease
	apart     bool                       // because the group's members use other settings
	freed     time.Time                  // when those others worked no longer
	valid     bool                       // there was an assignment in this session
	unserved  map[string]bool            // the reasons that were logged
	divided   parts                      // the last ones that were logged
	since     map[slots.Slot]time.Time   // when reported slots became unserved
	begun     map[slots.Slot]*owned.Slot // that the observers know
	panicked  bool                       // an observer has
	refused   error                      // by the group, and not logged yet
	recorded  bool                       // an event about unserved slots
}

// parts are what the log has about a division of the slots.
type parts struct{ owned, members int }

const (
	// unservedAfter is the age at which the log mentions unserved slots: moves take less.
	unservedAfter = 5 * time.Second
	// mostReasons is how many reasons the log names until all slots are served again.
	mostReasons = 10

	unread = "the group's Lease could not be read yet"
)

// trouble logs why there is no assignment, once for each change.
func (r *reporter) trouble(err error) {
	of := r.m.group.lease
	waits := err != nil && of != nil && !held(of) && lease.Holder(of) != ""
	text := ""
	switch {
	case waits:
		text = lease.Holder(of) + " holds the group's Lease; the group waits until it is released"
	case err != nil:
		text = err.Error()
	}
	was := r.why
	if text == was {
		return
	}
	refused := errors.Is(err, slots.ErrSettings)
	if (r.waits || r.apart) && !waits && !refused {
		r.freed = time.Now()
	}
	r.why, r.waits, r.apart = text, waits, refused
	switch {
	case text == "" && r.valid:
		r.m.log.Info("the assignment of slots is valid again")
	case text == "":
		r.valid = true
	case waits:
		r.m.log.Info("waiting until another process releases the group's Lease", "holder", lease.Holder(of))
	case refused && !r.m.leaving:
		r.refused = err
	case refused:
	case r.valid && !r.m.leaving:
		r.m.log.Warn("the assignment of slots is lost; all members stop, and make a new one", "err", err)
	}
}

// logRefusal names the members that use other settings. Their Leases are known when this session's
// is.
func (r *reporter) logRefusal() {
	if r.refused != nil && r.m.registry.get(r.m.name).heartbeat.session == r.m.id.Term {
		r.m.log.Warn("the group refuses this replica, which stays a standby", "err", r.refused, "members", r.strangers())
		r.refused = nil
	}
}

// strangers names the replicas that use other settings than this one, with their holders.
func (r *reporter) strangers() string {
	var all []string
	for _, of := range r.m.registry.members() {
		if holder := lease.Holder(of.lease); holder != "" && of.lease.Annotations[settingsAnnotation] != r.m.settings() {
			all = append(all, fmt.Sprintf("%s (%s)", of.lease.Name, holder))
		}
	}
	return strings.Join(all[:min(len(all), mostReasons)], ", ")
}

// report updates the status, logs slots that stay unserved, and calls the observers.
func (r *reporter) report(ctx context.Context) {
	s := r.current()
	r.m.status.Store(s)
	r.logRefusal()
	r.logUnserved(s)
	r.logDivided(s)
	r.reportSlots()
	now := r.observed(s)
	r.record(ctx, s, now.UnservedSince)
	r.send(&now)
}

// ended reports that this process is no member any more.
func (r *reporter) ended() {
	was := r.m.status.Load()
	r.m.status.Store(&Status{Group: was.Group, UID: was.UID, Read: was.Read})
	r.send(&hook.ShardGroup{Group: r.m.requests.group})
}

func (r *reporter) current() *Status {
	s := &Status{Group: r.m.requests.String(), Member: r.m.id.String(), Trouble: r.why}
	of := r.m.registry.get(r.m.requests.group)
	if s.Read = of.version != 0; !s.Read {
		s.Trouble = unread
	}
	if of.lease != nil {
		s.UID = of.lease.UID
	}
	a, err := r.m.view.Assignment()
	if a != nil {
		s.Epoch = a.Epoch()
		r.describe(s, a)
	}
	s.Standby = r.waits || r.apart || len(s.Members) >= slots.MaxMembers && !r.m.joined()
	for _, acquired := range r.ownership.all() {
		if !acquired.Stopped() {
			s.Owned = append(s.Owned, int(acquired.Number))
		}
	}
	if !errors.Is(err, slots.ErrSettings) { // else the members know
		s.Unserved, s.First = r.waiting(s.Trouble), r.first(a)
	}
	return s
}

func (r *reporter) describe(s *Status, a *slots.Assignment) {
	count := map[string]int{}
	for _, of := range a.All() {
		count[of.Owner.Name]++
		if of.To.Name != "" {
			s.Moving++
		}
	}
	for _, m := range a.Members() {
		of := MemberStatus{Name: m.Name, Weight: m.Weight, Leaving: m.Leaving, Slots: count[m.Name], Silent: r.m.heartbeat(m.ID).Silent}
		if seen := r.m.registry.get(m.Name).lease; seen != nil {
			of.Identity = lease.Holder(seen)
		}
		s.Members = append(s.Members, of)
	}
	identities := map[string]string{}
	for _, m := range s.Members {
		identities[m.Name] = m.Identity
	}
	for slot, of := range a.All() {
		s.owners[slot] = identities[of.Owner.Name]
	}
}

// first reports whether this member comes first of those that are alive and have seen the newest
// assignment. Without one, the replicas that wait for an assignment count.
func (r *reporter) first(a *slots.Assignment) bool {
	if a != nil {
		for _, m := range a.Members() {
			if p := r.m.heartbeat(m.ID); !m.Leaving && p.Silent.IsZero() && p.Seen > a.Epoch() {
				return m.ID == r.m.id
			}
		}
	}
	for _, of := range r.m.registry.members() {
		id := slots.ID{Name: of.lease.Name, Term: of.heartbeat.session}
		if id.Term != 0 && r.m.heartbeat(id).Silent.IsZero() {
			return id == r.m.id
		}
	}
	return false
}

// waiting groups the unserved slots by reason, oldest first. It adds the slots of this process
// that wait for the caches. Without an assignment, trouble is the reason.
func (r *reporter) waiting(trouble string) (all []Unserved) {
	at, since := map[string]int{}, map[slots.Slot]time.Time{}
	add := func(slot slots.Slot, began time.Time, reason string) {
		if was, ok := r.since[slot]; ok && was.Before(began) { // for another reason
			began = was
		}
		if began.Before(r.freed) { // the process that held the group's Lease has worked
			began = r.freed
		}
		since[slot] = began
		i, ok := at[reason]
		if !ok {
			i = len(all)
			at[reason] = i
			all = append(all, Unserved{Since: began, Reason: reason})
		}
		all[i].Slots = append(all[i].Slots, int(slot))
		if began.Before(all[i].Since) {
			all[i].Since = began
		}
	}
	for _, u := range r.m.view.Unserved(r.m.heartbeat) {
		add(u.Slot, u.Since, cmp.Or(trouble, u.Reason))
	}
	r.waitingHere(add)
	r.since = since
	slices.SortStableFunc(all, func(a, b Unserved) int { return a.Since.Compare(b.Since) })
	return all
}

// waitingHere adds slots of this process that wait for its caches.
func (r *reporter) waitingHere(add func(slots.Slot, time.Time, string)) {
	for _, slot := range r.m.view.Tasks().Owned {
		if r.ownership.bySlot[slot] == nil && !r.m.leaving {
			add(slot, time.Now(), "this member owns it, and its SlotCache does not have the objects yet")
		}
	}
	for _, acquired := range r.ownership.all() {
		waits := acquired.Waiting()
		for _, controller := range slices.Sorted(maps.Keys(waits)) {
			add(acquired.Number, acquired.Began(), fmt.Sprintf("controller %s waits: %s", controller, waits[controller]))
		}
	}
}

// logUnserved logs each reason once, until all slots are served again.
func (r *reporter) logUnserved(s *Status) {
	logged := r.unserved
	if len(s.Unserved) == 0 && len(logged) > 0 {
		clear(logged)
		r.m.log.Info("all slots are served again")
	}
	for _, u := range s.Unserved {
		age := time.Since(u.Since)
		known := r.waits && u.Reason == s.Trouble // trouble has logged it
		if age <= unservedAfter || known || logged[u.Reason] || len(logged) >= mostReasons {
			continue
		}
		logged[u.Reason] = true
		r.m.log.Warn("slots are not served, so their keys wait",
			"count", len(u.Slots), "slots", u.Slots.String(), "for", age.Round(time.Second).String(), "because", u.Reason)
	}
}

// logDivided logs this member's part when nothing moves any more, if the part is another one.
func (r *reporter) logDivided(s *Status) {
	now := parts{owned: len(s.Owned), members: len(s.Members)}
	if r.m.leaving || s.Epoch == 0 || s.Moving > 0 || len(s.Unserved) > 0 || now == r.divided {
		return
	}
	r.divided = now
	r.m.log.Info("the slots are divided", "count", now.owned, "members", now.members)
}

func (r *reporter) observed(s *Status) hook.ShardGroup {
	o := hook.ShardGroup{
		Group: r.m.requests.group, Member: r.m.id.Name, Epoch: s.Epoch, Members: len(s.Members),
		Owned: len(s.Owned), Moving: s.Moving, First: s.First,
	}
	all := map[int]bool{} // a slot may be unserved for several reasons
	for _, u := range s.Unserved {
		for _, slot := range u.Slots {
			all[slot] = true
		}
	}
	if o.Unserved = len(all); o.Unserved > 0 {
		o.UnservedSince, o.Reason = s.Unserved[0].Since, s.Unserved[0].Reason
	}
	return o
}

// reportSlots reports the slots that have begun or stopped since the last call.
func (r *reporter) reportSlots() {
	changed := map[hook.ShardChange]int{}
	for slot, a := range r.begun {
		switch {
		case !a.Stopped():
			continue
		case !r.lost && r.ownership.holds(a):
			changed[hook.ShardsReleased]++
		default:
			changed[hook.ShardsLost]++
		}
		delete(r.begun, slot)
	}
	for slot, a := range r.ownership.bySlot {
		if !a.Stopped() && r.begun[slot] != a {
			r.begun[slot] = a
			changed[hook.ShardsAcquired]++
		}
	}
	for _, change := range []hook.ShardChange{hook.ShardsReleased, hook.ShardsLost, hook.ShardsAcquired} {
		if n := changed[change]; n > 0 {
			r.send(&hook.ShardSlots{Group: r.m.requests.group, Slots: n, Change: change})
		}
	}
}

// send calls the observers. If one panics, the moves of slots go on.
func (r *reporter) send(e hook.Event) {
	defer func() {
		if p := recover(); p != nil && !r.panicked {
			r.panicked = true
			r.m.log.Error("an observer of the shard group has panicked; further panics are not logged", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	r.m.o.Hook.Send(e)
}
