// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/internal/stamp"
	"github.com/setpoint-dev/setpoint/shard/internal/slots"
)

// ErrReleased is the cause of refused requests of a slot that this process has released or lost.
var ErrReleased = errors.New("the slot belongs to another replica now, or to none")

// errHandedOn ends the term of a slot whose work has returned: its last events may be stored.
var errHandedOn = fmt.Errorf("%w: %w", ErrReleased, fence.ErrReturned)

// settleTime is how long a slot is owned at least before its handovers are dropped from the
// assignment. Then its controllers have begun to wait for them. The terms of the slots pass them on
// for a minute.
const settleTime = 2 * time.Second

// ownership has the slots of this session. They stay here until they are released or lost, and none
// of their work runs. It writes them to the table that controllers read. Only the session's
// goroutine uses it.
type ownership struct {
	m *member

	term   *fence.Term // of the member's Lease
	stamp  stamp.Codec
	bySlot map[slots.Slot]*owned.Slot
}

func newOwnership(m *member, t *fence.Term) *ownership {
	codec := stamp.Codec{Identity: m.identity, Host: m.requests.host, Limit: slots.MaxHandover}
	return &ownership{m: m, term: t, stamp: codec, bySlot: map[slots.Slot]*owned.Slot{}}
}

// all returns the slots, by number.
func (p *ownership) all() []*owned.Slot {
	return slices.SortedFunc(maps.Values(p.bySlot), func(a, b *owned.Slot) int { return cmp.Compare(a.Number, b.Number) })
}

// wanted returns the slots that this member owns or takes over, and those whose work still runs.
func (p *ownership) wanted(a *slots.Assignment) (all []slots.Slot) {
	for s, of := range a.All() {
		if of.Owner == p.m.id || of.To == p.m.id || p.bySlot[s] != nil {
			all = append(all, s)
		}
	}
	return all
}

// update makes the table agree with the view: it stops lost slots, and begins with new ones that
// are ready.
func (p *ownership) update(ready func(slots.Slot) bool) {
	var lost, begun []*owned.Slot
	for _, a := range p.all() {
		if p.holds(a) {
			continue
		}
		a.Term.End(ErrReleased) // also if it drains, and its work still runs
		switch {
		case !a.Stopped():
			lost = append(lost, a)
		case a.Idle():
			delete(p.bySlot, a.Number)
		}
	}
	p.stop(lost)
	tasks, handovers := p.m.view.Tasks(), map[string]*fence.Handover{}
	for _, s := range tasks.Owned {
		if p.bySlot[s] == nil && !slices.Contains(tasks.Drain, s) && !p.m.leaving && ready(s) {
			p.bySlot[s] = p.own(s, handovers)
			begun = append(begun, p.bySlot[s])
		}
	}
	if begun != nil {
		p.m.owned.Acquire(begun...)
	}
}

// holds reports whether the newest assignment gives the slot to this session.
func (p *ownership) holds(a *owned.Slot) bool {
	known := p.m.assignment()
	if known == nil {
		return false
	}
	of := known.Slot(a.Number)
	return of.Owner == p.m.id && of.Epoch == a.Epoch
}

// own makes an owned slot. Slots with the same handovers share them, so that controllers wait
// for them once.
func (p *ownership) own(s slots.Slot, handovers map[string]*fence.Handover) *owned.Slot {
	of := p.m.assignment().Slot(s)
	a := &owned.Slot{Number: s, Epoch: of.Epoch, Term: p.term.Part(fmt.Sprintf("slot %d", s))}
	if len(of.After) == 0 {
		return a
	}
	which := ""
	for _, h := range of.After {
		which += fmt.Sprintf(" %d", h.Epoch)
	}
	if handovers[which] == nil {
		handovers[which] = p.handover(of.After)
	}
	a.Term.Inherit(handovers[which]) // it passes them on if the slot moves again soon
	return a
}

func (p *ownership) handover(all []slots.Handover) *fence.Handover {
	sum := &fence.Handover{}
	for _, h := range all {
		left, err := p.stamp.Decode(h.Written)
		if err != nil {
			p.m.log.Warn("the writes that a former owner handed over cannot be read, so the caches are compared with the API server", "from", h.From.String(), "err", err)
		}
		sum.Holder, sum.Released = h.From.String(), left.Released
		sum.Add(left)
	}
	return sum
}

func (p *ownership) stop(all []*owned.Slot) {
	if len(all) > 0 {
		p.m.owned.Stop(all...)
	}
}

// drain stops slots whose next owners are ready.
func (p *ownership) drain(all []slots.Slot) {
	var stopped []*owned.Slot
	for _, s := range all {
		if a := p.bySlot[s]; a != nil && !a.Stopped() {
			stopped = append(stopped, a)
		}
	}
	p.stop(stopped)
}

func (p *ownership) stopAll() { p.drain(slices.Sorted(maps.Keys(p.bySlot))) }

// wait waits until the work of all slots has returned. They have stopped.
func (p *ownership) wait() {
	for !p.returned() {
		<-p.m.owned.Returned()
	}
}

func (p *ownership) returned() bool {
	return !slices.ContainsFunc(p.all(), func(a *owned.Slot) bool { return !a.Idle() })
}

// idle reports whether the member owns nothing that it could still work for.
func (p *ownership) idle() bool {
	return p.returned() && (p.m.assignment() == nil || len(p.m.view.Tasks().Owned) == 0)
}

// releasable returns slots that this member has stopped and whose work has returned, all for the
// same next owner: its caches can wait for all their writes. It closes the fence of these and
// others for good.
func (p *ownership) releasable() (all []slots.Slot) {
	tasks := p.m.view.Tasks()
	for _, s := range slices.Sorted(slices.Values(slices.Concat(tasks.Owned, tasks.Release))) {
		switch a := p.bySlot[s]; {
		case a == nil && (p.m.leaving || slices.Contains(tasks.Drain, s) || slices.Contains(tasks.Release, s)):
			all = append(all, s)
		case a != nil && a.Idle():
			a.Term.End(errHandedOn)
			all = append(all, s)
		}
	}
	p.m.view.Stop(time.Now(), all...)
	if all == nil {
		return nil
	}
	known := p.m.assignment()
	first := known.Slot(all[0]).To
	return slices.DeleteFunc(all, func(s slots.Slot) bool { return known.Slot(s).To != first })
}

// written describes the writes of slots, in at most limit bytes.
func (p *ownership) written(all []slots.Slot, limit int) string {
	var sum fence.Handover
	for _, s := range all {
		if a := p.bySlot[s]; a != nil {
			sum.Add(a.Term.Written())
		}
	}
	of := p.stamp
	of.Limit = limit
	return of.Encode(&sum, time.Now())
}

// settled returns the owned slots whose handovers no later owner needs.
func (p *ownership) settled() (all []slots.Slot) {
	known := p.m.assignment()
	for _, s := range p.m.view.Tasks().Owned {
		a := p.bySlot[s]
		if a != nil && a.Term.Inherited() != nil && time.Since(a.Began()) > settleTime && len(a.Waiting()) == 0 && len(known.Slot(s).After) > 0 {
			all = append(all, s)
		}
	}
	return all
}
