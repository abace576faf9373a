// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/internal/slots"
)

// decide stores the next assignment, if there is something to do, and returns the pause until the
// next step. One write has everything that is due.
func (l *life) decide(ctx context.Context) time.Duration {
	a, err := l.view.Assignment()
	var n *slots.Assignment
	switch {
	case l.group.version == 0:
		return l.pause()
	case errors.Is(err, slots.ErrInvalid) && !l.leaving:
		if n = l.fresh(ctx); n == nil {
			return min(l.pause(), max(l.seen.left(l.group), again))
		}
		l.renewed = time.Now()
	case a != nil:
		if n = l.transit(ctx, a); n == a {
			l.sweep(ctx, a)
			return l.pause()
		}
	default:
		return l.pause()
	}
	return l.store(ctx, l.group.lease, n)
}

// fresh returns a new assignment, unless another process holds the group's Lease. It makes at most
// one in a second.
func (l *life) fresh(ctx context.Context) *slots.Assignment {
	if !l.mayJoin() || !held(l.group.lease) && l.seen.left(l.group) > 0 || time.Since(l.renewed) < patience {
		return nil
	}
	if of := l.group.lease; of != nil && len(of.ManagedFields) == 0 {
		// The API server would not track who writes the annotation: it does for a new object only.
		if err := l.requests.remove(ctx, of); err != nil {
			l.failing("the group's Lease has no managedFields, and was not deleted; it will be retried", "err", err)
		}
		return nil
	}
	r, err := recordOf(l.group.lease, l.group.version)
	if err != nil {
		return nil
	}
	return slots.New(l.o.By.String(), r, time.Now())
}

// pause is the time until a member's Lease may be acquired, or one may be given slots.
func (l *life) pause() time.Duration {
	pause := patience
	if l.leaving {
		pause = min(pause, time.Until(l.leaveBy))
	}
	a, _ := l.view.Assignment()
	if a == nil {
		return max(pause, time.Millisecond)
	}
	for _, id := range l.others(a) {
		if left := l.seen.left(l.seen.look(id.Name)) + l.spread; left > 0 {
			pause = min(pause, left)
		} else {
			pause = min(pause, again)
		}
	}
	return max(pause, time.Millisecond)
}

// again is the pause after a failed attempt to acquire a Lease.
const again = 200 * time.Millisecond

// others returns the other lives that may own slots.
func (l *life) others(a *slots.Assignment) (all []slots.ID) {
	waiting, _ := a.Recovering()
	for _, m := range a.Members() {
		waiting = append(waiting, m.ID)
	}
	for _, id := range waiting {
		if id.Name != l.id.Name {
			all = append(all, id)
		}
	}
	return all
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
func (l *life) transit(ctx context.Context, a *slots.Assignment) *slots.Assignment {
	n, now := &transition{a}, time.Now()
	tasks := l.view.Tasks()
	if tasks.List {
		l.list(ctx, n)
	}
	if tasks.Acknowledge && l.idle() {
		n.apply(n.n.Acknowledge(l.id))
	}
	l.bury(ctx, a)
	for id, proof := range l.proofs {
		if !n.apply(n.n.Dead(proof.of, proof.since)) {
			delete(l.proofs, id)
		}
	}
	if tasks.Join && l.mayJoin() {
		n.apply(n.n.Join(slots.Member{ID: l.id, Weight: l.o.Weight}, now))
	}
	ready := slices.DeleteFunc(tasks.Prepare, func(s slots.Slot) bool { return !l.prepared.ready(s) })
	if len(ready) > 0 && !l.leaving {
		n.apply(n.n.Ready(l.id, now, ready...))
	}
	l.leave(n)
	l.drain(tasks.Drain)
	l.release(n, now)
	l.leave(n)
	if all := l.settled(); len(all) > 0 {
		n.apply(n.n.Settle(l.id, all...))
	}
	if l.mayPropose(n.n, a) {
		n.n = n.n.Propose(now)
	}
	return n.n
}

// mayJoin reports whether nothing of the process runs, and its Lease shows this life.
func (l *life) mayJoin() bool {
	return !l.leaving && len(l.tenancies) == 0 && shown(l.seen.look(l.id.Name).lease).life == l.id.Term
}

// leave gives up the member's slots, and later its membership. Without another member, or when the
// others take too long, it stops its slots without adopters.
func (l *life) leave(n *transition) {
	if !l.leaving || !n.n.Joined(l.id) {
		return
	}
	before, alone := false, true
	for _, m := range n.n.Members() {
		before = before || m.ID == l.id && m.Leaving
		alone = alone && (m.ID == l.id || m.Leaving)
	}
	next, err := n.n.Leave(l.id)
	if err == nil && (!before || !next.Joined(l.id)) {
		n.n = next
	}
	if alone || time.Now().After(l.leaveBy) {
		l.stopAll()
	}
}

func (l *life) release(n *transition, now time.Time) {
	all := l.releasable()
	if len(all) == 0 {
		return
	}
	room := n.n.Room()
	if !n.apply(n.n.Release(l.view, l.written(all, min(slots.MaxHandover/2, room/4)), now, all...)) {
		l.log.Warn("the assignment has no room for the newest writes of released slots; their next owner does not wait for them", "slots", len(all))
		n.apply(n.n.Release(l.view, "", now, all...))
	}
}

// mayPropose reports whether moves may be planned now. A new member gets slots that have an owner
// only after Settle, or if another member leaves.
func (l *life) mayPropose(n, before *slots.Assignment) bool {
	urgent, fresh := false, false
	for _, m := range n.Members() {
		urgent = urgent || m.Leaving
		met, ok := l.met[m.ID]
		fresh = fresh || !ok || time.Since(met) < l.o.Settle
	}
	for s := range slots.Slots {
		urgent = urgent || n.Slot(slots.Slot(s)).Owner == slots.ID{} //nolint:gosec // less than Slots
	}
	return urgent || !fresh
}

// store stores an assignment in place of the one that it was made from.
func (l *life) store(ctx context.Context, before *coordinationv1.Lease, n *slots.Assignment) time.Duration {
	lease, err := l.requests.stored(before, n, l.leaving, time.Now())
	if err == nil {
		lease, err = l.requests.put(ctx, lease)
	}
	switch {
	case err == nil:
		l.stored(n)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		if lease, err = l.requests.get(ctx, l.name); err != nil {
			return patience/2 + retryPause() // the watch may show it before
		}
	default:
		if ctx.Err() == nil {
			l.failing("the assignment of slots was not stored; it will be retried", "err", err)
		}
		return patience/2 + retryPause()
	}
	version, err := parseVersion(lease.ResourceVersion)
	if err != nil {
		return patience
	}
	l.seen.note(l.name, lease, version) // another step follows at once
	return retryPause()
}

func retryPause() time.Duration { return time.Millisecond + rand.N(20*time.Millisecond) }
