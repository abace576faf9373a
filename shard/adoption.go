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

	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/internal/stamp"
	"github.com/setpoint-dev/setpoint/shard/internal/slots"
	"github.com/setpoint-dev/setpoint/term"
)

// ErrReleased is the cause of refused requests of a slot that this process has released or lost.
var ErrReleased = errors.New("the slot belongs to another replica now, or to none")

// errHandedOn ends the term of a slot whose work has returned: its last events may be stored.
var errHandedOn = fmt.Errorf("%w: %w", ErrReleased, term.ErrReturned)

// settleTime is how long an adoption lasts at least before its handovers are dropped from the
// assignment. Then its controllers have begun to wait for them. The terms of the slots pass them on
// for a minute.
const settleTime = 2 * time.Second

// adoptions of this life stay here until they are released or lost, and none of their work runs.
// It writes them to the table that controllers read. Only the life's goroutine uses it.
type adoptions struct {
	*member

	term  *term.Term // of the member's Lease
	stamp stamp.Codec
	of    map[slots.Slot]*owned.Adoption
}

func newAdoptions(m *member, t *term.Term) *adoptions {
	codec := stamp.Codec{Identity: m.identity, Host: m.requests.host, Limit: slots.MaxHandover}
	return &adoptions{member: m, term: t, stamp: codec, of: map[slots.Slot]*owned.Adoption{}}
}

// all returns the adoptions by slot.
func (p *adoptions) all() []*owned.Adoption {
	return slices.SortedFunc(maps.Values(p.of), func(a, b *owned.Adoption) int { return cmp.Compare(a.Number, b.Number) })
}

// wanted returns the slots that this member owns or adopts, and those whose work still runs.
func (p *adoptions) wanted(a *slots.Assignment) (all []slots.Slot) {
	for s, of := range a.All() {
		if of.Owner == p.id || of.To == p.id || p.of[s] != nil {
			all = append(all, s)
		}
	}
	return all
}

// follow makes the table agree with the view: it ends lost adoptions, and begins new ones of slots
// that are ready.
func (p *adoptions) follow(ready func(slots.Slot) bool) {
	var lost, begun []*owned.Adoption
	for _, a := range p.all() {
		if p.holds(a) {
			continue
		}
		a.Term.End(ErrReleased) // also if it drains, and its work still runs
		switch {
		case !a.Stopped():
			lost = append(lost, a)
		case a.Idle():
			delete(p.of, a.Number)
		}
	}
	p.stop(lost)
	tasks, handovers := p.view.Tasks(), map[string]*term.Handover{}
	for _, s := range tasks.Owned {
		if p.of[s] == nil && !slices.Contains(tasks.Drain, s) && !p.leaving && ready(s) {
			p.of[s] = p.adoption(s, handovers)
			begun = append(begun, p.of[s])
		}
	}
	if begun != nil {
		p.owned.Adopt(begun...)
	}
}

// holds reports whether the newest assignment gives the slot to this adoption.
func (p *adoptions) holds(a *owned.Adoption) bool {
	known := p.assignment()
	if known == nil {
		return false
	}
	of := known.Slot(a.Number)
	return of.Owner == p.id && of.Epoch == a.Epoch
}

// adoption begins an adoption. Slots with the same handovers share them, so that controllers wait
// for them once.
func (p *adoptions) adoption(s slots.Slot, handovers map[string]*term.Handover) *owned.Adoption {
	of := p.assignment().Slot(s)
	a := &owned.Adoption{Number: s, Epoch: of.Epoch, Term: p.term.Part(fmt.Sprintf("slot %d", s))}
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
	a.Before = handovers[which]
	a.Term.Inherit(*a.Before) // if the slot moves on soon, the next owner waits for these, too
	return a
}

func (p *adoptions) handover(all []slots.Handover) *term.Handover {
	sum := &term.Handover{}
	for _, h := range all {
		left, err := p.stamp.Decode(h.Written)
		if err != nil {
			p.log.Warn("the writes that a former owner handed over cannot be read, so the caches are compared with the API server", "from", h.From.String(), "err", err)
		}
		sum.Holder, sum.Released = h.From.String(), left.Released
		sum.Add(left)
	}
	return sum
}

func (p *adoptions) stop(all []*owned.Adoption) {
	if len(all) > 0 {
		p.owned.Stop(all...)
	}
}

// drain stops slots whose adopters are ready.
func (p *adoptions) drain(all []slots.Slot) {
	var stopped []*owned.Adoption
	for _, s := range all {
		if a := p.of[s]; a != nil && !a.Stopped() {
			stopped = append(stopped, a)
		}
	}
	p.stop(stopped)
}

func (p *adoptions) stopAll() { p.drain(slices.Sorted(maps.Keys(p.of))) }

// wait waits until the work of all slots has returned. They have stopped.
func (p *adoptions) wait() {
	for !p.returned() {
		<-p.owned.Returned()
	}
}

func (p *adoptions) returned() bool {
	return !slices.ContainsFunc(p.all(), func(a *owned.Adoption) bool { return !a.Idle() })
}

// idle reports whether the member owns nothing that it could still work for.
func (p *adoptions) idle() bool {
	return p.returned() && (p.assignment() == nil || len(p.view.Tasks().Owned) == 0)
}

// releasable returns slots that this member has stopped and whose work has returned, all for the
// same adopter: its caches can wait for all their writes. It closes the fence of these and others
// for good.
func (p *adoptions) releasable() (all []slots.Slot) {
	tasks := p.view.Tasks()
	for _, s := range slices.Sorted(slices.Values(slices.Concat(tasks.Owned, tasks.Release))) {
		switch a := p.of[s]; {
		case a == nil && (p.leaving || slices.Contains(tasks.Drain, s) || slices.Contains(tasks.Release, s)):
			all = append(all, s)
		case a != nil && a.Idle():
			a.Term.End(errHandedOn)
			all = append(all, s)
		}
	}
	p.view.Stop(time.Now(), all...)
	if all == nil {
		return nil
	}
	known := p.assignment()
	first := known.Slot(all[0]).To
	return slices.DeleteFunc(all, func(s slots.Slot) bool { return known.Slot(s).To != first })
}

// written describes the writes of slots, in at most limit bytes.
func (p *adoptions) written(all []slots.Slot, limit int) string {
	var sum term.Handover
	for _, s := range all {
		if a := p.of[s]; a != nil {
			sum.Add(a.Term.Written())
		}
	}
	of := p.stamp
	of.Limit = limit
	return of.Encode(&sum, time.Now())
}

// settled returns the owned slots whose handovers no later owner needs.
func (p *adoptions) settled() (all []slots.Slot) {
	known := p.assignment()
	for _, s := range p.view.Tasks().Owned {
		a := p.of[s]
		if a != nil && a.Before != nil && time.Since(a.Began()) > settleTime && len(a.Waiting()) == 0 && len(known.Slot(s).After) > 0 {
			all = append(all, s)
		}
	}
	return all
}
