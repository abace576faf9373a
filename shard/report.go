// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/internal/slots"
)

// Status describes a group as this process sees it.
type Status struct {
	// Group is NAMESPACE/NAME of the group's Lease.
	Group string
	// Member is this member: the name of its Lease, and the version at which it acquired it. It is
	// empty while the process holds no Lease.
	Member string
	// Epoch is the version of the newest assignment, or 0 without one.
	Epoch uint64
	// Members are all members, by name.
	Members []MemberStatus
	// Owned are the slots of this process.
	Owned []int
	// Moving is the number of slots that are about to change their owner.
	Moving int
	// Unserved are the slots for which no member acts, as far as this process knows. Each move of a
	// slot is listed for a moment.
	Unserved []Unserved
	// Trouble says why there is no valid assignment, or is empty.
	Trouble string
	// Audit compares a sample of keys with those that other members know.
	Audit Audit
}

// MemberStatus describes a member.
type MemberStatus struct {
	// Name is the name of its Lease.
	Name string
	// Weight is its Options.Weight.
	Weight int
	// Leaving reports whether it gives up its slots.
	Leaving bool
	// Slots is the number of its slots.
	Slots int
	// Silent is since when it has not renewed its Lease, or zero.
	Silent time.Time
}

// Unserved describes slots for which no member acts, for one reason.
type Unserved struct {
	// Slots are their numbers, from 0 to 255.
	Slots []int
	// Since is when the oldest of them began.
	Since time.Time
	// Reason is a clause, such as "its owner pod-a does not renew its Lease".
	Reason string
}

// Status returns the state of the group. Run updates it at least every second, and with every
// change. You may keep it: it never changes.
func (g *Group) Status() *Status { return g.status.Load() }

// reported is what the log has said.
type reported struct {
	trouble  string
	valid    bool // there was an assignment in this life
	unserved string
}

// unservedAfter is the age at which the log mentions unserved slots: moves take less.
const unservedAfter = 5 * time.Second

// trouble logs that the group waits for another holder of its Lease, or that the assignment was
// lost, once for each change.
func (l *life) trouble(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	was := l.reported.trouble
	if text == was {
		return
	}
	l.reported.trouble = text
	if of := l.group.lease; of != nil && !held(of) && lease.Holder(of) != "" {
		l.log.Info("the group waits until another process releases its Lease", "holder", lease.Holder(of))
		return
	}
	switch {
	case text == "" && l.reported.valid:
		l.log.Info("the assignment of slots is valid again")
	case text == "":
		l.reported.valid = true
	case l.reported.valid && !l.leaving:
		l.log.Warn("the assignment of slots is lost; all members stop, and make a new one", "err", err)
	}
}

// report updates the status, and logs slots that stay unserved.
func (l *life) report() {
	s := &Status{Group: l.String(), Member: l.id.String(), Trouble: l.reported.trouble, Audit: l.audit()}
	if a, _ := l.view.Assignment(); a != nil {
		s.Epoch = a.Epoch()
		l.describe(s, a)
	}
	for _, slot := range slices.Sorted(maps.Keys(l.tenancies)) {
		if !l.tenancies[slot].Stopped() {
			s.Owned = append(s.Owned, int(slot))
		}
	}
	s.Unserved = l.unserved()
	l.status.Store(s)
	l.logUnserved(s)
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
		s.Members = append(s.Members, MemberStatus{
			Name: m.Name, Weight: m.Weight, Leaving: m.Leaving, Slots: count[m.Name], Silent: l.pulse(m.ID).Silent,
		})
	}
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
// that wait for the caches.
func (l *life) unserved() (all []Unserved) {
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

func (l *life) logUnserved(s *Status) {
	var late []string
	for _, u := range s.Unserved {
		if time.Since(u.Since) > unservedAfter {
			late = append(late, u.Reason)
		}
	}
	text := strings.Join(late, "; ")
	if text == l.reported.unserved {
		return
	}
	l.reported.unserved = text
	if text == "" {
		l.log.Info("all slots are served again")
		return
	}
	u := s.Unserved[0]
	l.log.Warn("slots are not served: their keys wait", "slots", len(u.Slots), "for", time.Since(u.Since).Round(time.Second).String(), "because", cmp.Or(text, u.Reason))
}
