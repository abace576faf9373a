// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/internal/slots"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/term"
)

// ErrReleased is the cause of refused requests of a slot that this process has released or lost.
var ErrReleased = errors.New("the slot belongs to another replica now, or to none")

// settleTime is how long an adoption lasts at least before its handovers are dropped from the
// assignment. Then its controllers have begun to wait for them. The terms of the slots pass them on
// for a minute.
const settleTime = 2 * time.Second

// tenancy is an adoption of a slot by this process, until it is released or lost, and none of its
// work runs.
type tenancy struct {
	*owned.Adoption

	began time.Time
}

func (t *tenancy) idle() bool { return t.Stopped() && run.Closed(t.Idle()) }

// follow makes the table of owned slots agree with the view: it ends lost adoptions, and begins new
// ones.
func (l *life) follow() {
	var lost, begun []*owned.Adoption
	for _, s := range slices.Sorted(maps.Keys(l.tenancies)) {
		t := l.tenancies[s]
		if l.holds(t) {
			continue
		}
		t.Term.End(ErrReleased) // also if it drains, and its work still runs
		switch {
		case !t.Stopped():
			lost = append(lost, t.Adoption)
		case t.idle():
			delete(l.tenancies, s)
		}
	}
	l.stop(lost...)
	tasks, handovers := l.view.Tasks(), map[string]*term.Handover{}
	for _, s := range tasks.Owned {
		if l.tenancies[s] == nil && !slices.Contains(tasks.Drain, s) && !l.leaving && l.prepared.ready(s) {
			a := l.adoption(s, handovers)
			l.tenancies[s] = &tenancy{a, time.Now()}
			begun = append(begun, a)
		}
	}
	if begun != nil {
		l.owned.Adopt(begun...)
	}
}

// holds reports whether the newest assignment gives the slot to this adoption.
func (l *life) holds(t *tenancy) bool {
	a, _ := l.view.Assignment()
	if a == nil {
		return false
	}
	of := a.Slot(t.Slot)
	return of.Owner == l.id && of.Epoch == t.Epoch
}

// adoption begins an adoption. Slots with the same handovers share them, so that controllers wait
// for them once.
func (l *life) adoption(s slots.Slot, handovers map[string]*term.Handover) *owned.Adoption {
	known, _ := l.view.Assignment()
	of := known.Slot(s)
	a := &owned.Adoption{Slot: s, Epoch: of.Epoch, Label: l.label, Term: l.term.Part(fmt.Sprintf("slot %d", s))}
	if len(of.After) == 0 {
		return a
	}
	which := ""
	for _, h := range of.After {
		which += fmt.Sprintf(" %d", h.Epoch)
	}
	if handovers[which] == nil {
		handovers[which] = l.handover(of.After)
	}
	a.Left = handovers[which]
	a.Term.Inherit(*a.Left) // if the slot moves on soon, the next owner waits for these, too
	return a
}

func (l *life) handover(all []slots.Handover) *term.Handover {
	sum := &term.Handover{}
	for _, h := range all {
		left, err := l.stamp.Decode(h.Written)
		if err != nil {
			sum.Unknown++
			l.log.Warn("the writes that a former owner handed over cannot be read; its slots start without waiting for them", "from", h.From.String(), "err", err)
			continue
		}
		sum.Holder, sum.Released = h.From.String(), left.Released
		sum.Writes = append(sum.Writes, left.Writes...)
		sum.Unknown += left.Unknown
	}
	return sum
}

// stop ends adoptions. Whenever work of one has returned, another step follows.
func (l *life) stop(all ...*owned.Adoption) {
	if len(all) == 0 {
		return
	}
	l.owned.Stop(all...)
	for _, a := range all {
		if run.Closed(a.Idle()) {
			l.wake()
			continue
		}
		l.awaiting.Go(func() {
			<-a.Idle()
			l.wake()
		})
	}
}

func (l *life) wake() {
	select {
	case l.returned <- struct{}{}:
	default:
	}
}

// drain stops slots whose adopters are ready.
func (l *life) drain(all []slots.Slot) {
	var stopped []*owned.Adoption
	for _, s := range all {
		if t := l.tenancies[s]; t != nil && !t.Stopped() {
			stopped = append(stopped, t.Adoption)
		}
	}
	l.stop(stopped...)
}

func (l *life) stopAll() { l.drain(slices.Sorted(maps.Keys(l.tenancies))) }

// idle reports whether the member owns nothing that it could still work for.
func (l *life) idle() bool {
	for _, t := range l.tenancies {
		if !t.idle() {
			return false
		}
	}
	a, _ := l.view.Assignment()
	return a == nil || len(l.view.Tasks().Owned) == 0
}

// releasable returns slots that this member has stopped and whose work has returned, all for the
// same adopter: its caches can wait for all their writes. It closes the fence of these and others
// for good.
func (l *life) releasable() (all []slots.Slot) {
	tasks := l.view.Tasks()
	for _, s := range slices.Sorted(slices.Values(slices.Concat(tasks.Owned, tasks.Release))) {
		switch t := l.tenancies[s]; {
		case t == nil && (l.leaving || slices.Contains(tasks.Drain, s) || slices.Contains(tasks.Release, s)):
			all = append(all, s)
		case t != nil && t.idle():
			t.Term.End(ErrReleased)
			all = append(all, s)
		}
	}
	l.view.Stop(time.Now(), all...)
	if all == nil {
		return nil
	}
	a, _ := l.view.Assignment()
	first := a.Slot(all[0]).To
	return slices.DeleteFunc(all, func(s slots.Slot) bool { return a.Slot(s).To != first })
}

// written describes the newest writes of slots, in at most limit bytes.
func (l *life) written(all []slots.Slot, limit int) string {
	var writes []ledger.Write
	unknown := 0
	for _, s := range all {
		if t := l.tenancies[s]; t != nil {
			more, doubts := t.Term.Written()
			writes, unknown = append(writes, more...), unknown+doubts
		}
	}
	// Encode drops the oldest first. Terms of slots have no order in common but the versions.
	slices.SortStableFunc(writes, func(a, b ledger.Write) int {
		return cmp.Or(cmp.Compare(len(a.ResourceVersion), len(b.ResourceVersion)), strings.Compare(a.ResourceVersion, b.ResourceVersion))
	})
	of := l.stamp
	of.Limit = limit
	return of.Encode(writes, unknown, time.Now())
}

// settled returns the owned slots whose handovers no later owner needs.
func (l *life) settled() (all []slots.Slot) {
	known, _ := l.view.Assignment()
	for _, s := range l.view.Tasks().Owned {
		t := l.tenancies[s]
		if t != nil && t.Left != nil && time.Since(t.began) > settleTime && len(t.Waiting()) == 0 && len(known.Slot(s).After) > 0 {
			all = append(all, s)
		}
	}
	return all
}
