// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/setpoint-dev/setpoint/shard/internal/slots"
)

// planner stores the next assignments. Only the session's goroutine uses it.
type planner struct {
	m       *member
	expirer *expirer

	prepared  *preparations
	ownership *ownership
	met       map[slots.ID]time.Time // when this session saw the members first
	renewed   time.Time              // when it made the last new assignment
	listed    time.Time              // when it last listed the Leases
	read      time.Time              // when it last read its own Lease
}

func newPlanner(m *member, p *preparations, a *ownership) *planner {
	return &planner{m: m, expirer: &expirer{m: m, proofs: map[slots.ID]proof{}, tried: map[string]time.Time{}}, prepared: p, ownership: a, met: map[slots.ID]time.Time{}, read: time.Now()}
}

// step stores the next assignment, if there is something to do, and returns the pause until the
// next step. One write has everything that is due.
func (p *planner) step(ctx context.Context) time.Duration {
	a, err := p.m.view.Assignment()
	n := a
	switch {
	case p.m.group.version == 0:
	case a != nil:
		if n = p.transit(ctx, a); n == a {
			p.expirer.sweep(ctx, a)
		}
	case errors.Is(err, slots.ErrInvalid) && !p.m.leaving:
		if n = p.fresh(ctx); n == nil {
			return min(p.pause(), max(p.m.registry.left(p.m.group), acquireRetry))
		}
		p.renewed = time.Now()
	}
	if n == a {
		return p.pause()
	}
	return p.store(ctx, n)
}

// fresh returns a new assignment, unless another process holds the group's Lease. It makes at most
// one in a second.
func (p *planner) fresh(ctx context.Context) *slots.Assignment {
	if !p.mayJoin(ctx) || !held(p.m.group.lease) && p.m.registry.left(p.m.group) > 0 || time.Since(p.renewed) < pollInterval {
		return nil
	}
	if of := p.m.group.lease; of != nil && len(of.ManagedFields) == 0 {
		// The API server would not track who writes the annotation: it does for a new object only.
		if err := p.m.requests.remove(ctx, of); err != nil {
			p.m.failing(ctx, "the group's Lease has no managedFields, and was not deleted; it will be retried", "err", err)
		}
		return nil
	}
	r, err := recordOf(p.m.group.lease, p.m.group.version)
	if err != nil {
		return nil
	}
	return slots.New(p.m.o.Partitioner.String(), r, time.Now())
}

// pause is the time until a member's Lease may be acquired, or one may be given slots.
func (p *planner) pause() time.Duration {
	pause := pollInterval
	if p.m.leaving {
		pause = min(pause, time.Until(p.m.leaveBy))
	}
	if a := p.m.assignment(); a != nil {
		for _, id := range p.m.others(a) {
			left := p.m.left(p.m.registry.get(id.Name))
			if left <= 0 {
				left = acquireRetry
			}
			pause = min(pause, left)
		}
	}
	return max(pause, time.Millisecond)
}

// transition is a series of transitions of an assignment, which skips those that fail.
type transition struct{ n *slots.Assignment }

func (t *transition) apply(next *slots.Assignment, err error) (ok bool) {
	if err == nil {
		t.n = next
	}
	return err == nil
}

// transit applies everything that is due.
func (p *planner) transit(ctx context.Context, a *slots.Assignment) *slots.Assignment {
	n, now := &transition{a}, time.Now()
	tasks := p.m.view.Tasks()
	if tasks.List {
		p.list(ctx, n)
	}
	if tasks.Acknowledge && p.ownership.idle() {
		n.apply(n.n.Acknowledge(p.m.id))
	}
	p.expirer.expire(ctx, a)
	maps.DeleteFunc(p.expirer.proofs, func(_ slots.ID, found proof) bool { return !n.apply(n.n.Dead(found.of, found.since)) })
	if tasks.Join && p.mayJoin(ctx) {
		next, err := n.n.Join(slots.Member{ID: p.m.id, Weight: p.m.o.Weight}, now)
		if !n.apply(next, err) { // each slot has a member of its own
			p.m.failing(ctx, "this replica is no member of the group, and waits", "err", err)
		}
	}
	ready := slices.DeleteFunc(tasks.Prepare, func(s slots.Slot) bool { return !p.prepared.ready(s) })
	if len(ready) > 0 && !p.m.leaving {
		n.apply(n.n.Ready(p.m.id, now, ready...))
	}
	p.leave(n)
	p.ownership.drain(tasks.Drain)
	p.release(n, now)
	p.leave(n)
	if all := p.ownership.settled(); len(all) > 0 {
		n.apply(n.n.Settle(p.m.id, all...))
	}
	if p.mayPropose(n.n) {
		n.n = n.n.Propose(now)
	}
	return n.n
}

// list reads which sessions may act on an assignment before a new one.
func (p *planner) list(ctx context.Context, n *transition) {
	if time.Since(p.listed) < pollInterval {
		return
	}
	p.listed = time.Now()
	all, version, err := p.m.requests.list(ctx)
	if err != nil {
		p.m.failing(ctx, "the Leases of the group cannot be listed; its slots wait", "err", err)
		return
	}
	var living []slots.ID
	for i := range all {
		shows := heartbeatOf(&all[i])
		if shows.author == edited {
			p.edited(ctx, &all[i])
			return
		}
		if shows.session != 0 {
			living = append(living, slots.ID{Name: all[i].Name, Term: shows.session})
		}
	}
	n.apply(n.n.Listed(version, living...))
}

// edited handles a Lease that does not show which session holds it. Its holder renews it soon, and
// writes it as it was. Otherwise it expires, and is acquired.
func (p *planner) edited(ctx context.Context, l *coordinationv1.Lease) {
	p.m.failing(ctx, "the Lease of a replica was edited by hand; a new assignment waits until it is renewed or expires", "lease", l.Name)
	_, _ = p.m.registry.put(l)
	if of := p.m.registry.get(l.Name); p.m.left(of) <= 0 {
		p.expirer.acquire(ctx, l.Name, of)
	}
}

// mayJoin reports whether nothing of the process runs, and its Lease shows this session.
func (p *planner) mayJoin(ctx context.Context) bool {
	if p.m.leaving || len(p.ownership.bySlot) > 0 {
		return false
	}
	shows := func() bool { return p.m.registry.get(p.m.id.Name).heartbeat.session == p.m.id.Term }
	if !shows() && time.Since(p.read) > p.m.registry.least {
		_ = read(ctx, &p.m.requests, p.m.registry, p.m.id.Name) // the watch may be silent
		p.read = time.Now()
	}
	return shows()
}

// leave gives up the member's slots, and later its membership. Without another member, or when the
// others take too long, it stops its slots without waiting for their next owners.
func (p *planner) leave(n *transition) {
	if !p.m.leaving || !n.n.Joined(p.m.id) {
		return
	}
	before, alone := false, true
	for _, m := range n.n.Members() {
		before = before || m.ID == p.m.id && m.Leaving
		alone = alone && (m.ID == p.m.id || m.Leaving)
	}
	next, err := n.n.Leave(p.m.id)
	if err == nil && (!before || !next.Joined(p.m.id)) {
		n.n = next
	}
	if alone || time.Now().After(p.m.leaveBy) {
		p.ownership.stopAll()
	}
}

func (p *planner) release(n *transition, now time.Time) {
	all := p.ownership.releasable()
	if len(all) == 0 {
		return
	}
	room := n.n.Room()
	if !n.apply(n.n.Release(p.m.view, p.ownership.written(all, min(slots.MaxHandover/2, room/4)), now, all...)) {
		p.m.log.Warn("the assignment has no room for the newest writes of released slots; their next owner does not wait for them", "slots", len(all))
		n.apply(n.n.Release(p.m.view, "", now, all...))
	}
}

// mayPropose reports whether moves may be planned now. A new member gets slots that have an owner
// only after Settle, or if another member leaves.
func (p *planner) mayPropose(n *slots.Assignment) bool {
	urgent, fresh := false, false
	for _, m := range n.Members() {
		urgent = urgent || m.Leaving
		if _, ok := p.met[m.ID]; !ok {
			p.met[m.ID] = time.Now()
		}
		fresh = fresh || time.Since(p.met[m.ID]) < p.m.o.Settle
	}
	for _, of := range n.All() {
		urgent = urgent || of.Owner == slots.ID{}
	}
	return urgent || !fresh
}

// store stores an assignment in place of the one that it was made from.
func (p *planner) store(ctx context.Context, n *slots.Assignment) time.Duration {
	sent, err := p.m.requests.stored(p.m.group.lease, n, p.m.leaving, time.Now())
	var got *coordinationv1.Lease
	if err == nil {
		got, err = p.m.requests.put(ctx, sent)
	}
	switch {
	case err == nil:
		if got.Annotations[SlotsAnnotation] != sent.Annotations[SlotsAnnotation] {
			p.m.failing(ctx, "the API server changed the assignment of slots while storing it; look for an admission webhook that changes Leases")
		}
		_, err = p.m.registry.put(got) // another step follows at once
	case overtaken(err):
		err = read(ctx, &p.m.requests, p.m.registry, p.m.requests.group)
	default:
		p.m.failing(ctx, "the assignment of slots was not stored; it will be retried", "err", err)
	}
	if err != nil {
		return pollInterval/2 + retryPause()
	}
	return retryPause()
}

func retryPause() time.Duration { return time.Millisecond + rand.N(20*time.Millisecond) }
