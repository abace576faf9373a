// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"errors"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// ErrNotHeld is returned for an Item that was settled before, and for the zero Item. Nothing has happened (W9).
var ErrNotHeld = errors.New("workqueue: the item is not held: it was settled before")

// Item is a key that a worker has taken. It is a small value that may be copied and handed on; all copies are one
// token. Settle it exactly once, with Done, Retry (RetryNotBefore, RetryWith), After, Park or Release: until then nobody
// else gets the key. A second settling has no effect, returns ErrNotHeld and is counted and reported to the hooks (W9).
// Settling works after ShutDown too; what would then have to wait is dropped and counted.
type Item[K comparable] struct {
	q        *Queue[K]
	key      K
	delivery uint64
	queued   int64
	index    uint32
	attempt  uint32
	class    uint8
}

// Key returns the key.
func (i Item[K]) Key() K { return i.key }

// Attempt returns 1 for a key that has not failed since it last succeeded, 2 after one failure, and so on.
func (i Item[K]) Attempt() int { return int(i.attempt) + 1 }

// Delivery returns the number of this delivery, unique within the queue and growing.
func (i Item[K]) Delivery() uint64 { return i.delivery }

// Class returns the class that the key was taken with.
func (i Item[K]) Class() Class {
	if i.q == nil {
		return Normal
	}
	return i.q.classIn(i.class)
}

// Queued returns when the key became ready, or the zero time if Options.Reasons says that nobody wants to know.
func (i Item[K]) Queued() time.Time {
	if i.q == nil || !i.q.core.stamped {
		return time.Time{}
	}
	return i.q.start.Add(time.Duration(i.queued))
}

// Reasons returns a copy of the reasons of this delivery: the first and the newest Options.Reasons; or EventAdded, if
// it was added without any. It returns nil once the item is settled.
func (i Item[K]) Reasons() []Reason {
	r, _ := i.reasons()
	return r
}

// ReasonsDropped returns how many reasons of this delivery were dropped, between the first and the second that
// Reasons returns.
func (i Item[K]) ReasonsDropped() int {
	_, dropped := i.reasons()
	return dropped
}

func (i Item[K]) reasons() ([]Reason, int) {
	if i.q == nil {
		return nil, 0
	}
	i.q.mu.Lock()
	defer i.q.mu.Unlock()
	e, ok := i.q.core.heldBy(i.index, i.delivery)
	if !ok {
		return nil, 0
	}
	taken := i.q.core.only(e)
	if x := i.q.core.extra(e); x != nil {
		taken = x.taken
	}
	if taken.n == 0 && !i.q.core.notes.off {
		return []Reason{i.q.added(i.queued)}, 0
	}
	return i.q.core.notes.copyOf(&taken), int(taken.dropped)
}

// Done settles the key as dealt with: its failures are forgotten. Use it also for what should not be tried again.
func (i Item[K]) Done() error {
	return i.settle(verdict{outcome: hook.QueueDone}, nil)
}

// Retry settles the key as failed: it is ready again after Options.Backoff, or, where that is
// longer, as soon as Options.Limiter allows, or at once if it was added while it was held. It keeps
// its class. Retry returns the delay. The error is only passed to the hooks and may be nil.
func (i Item[K]) Retry(err error) (time.Duration, error) { return i.RetryWith(err, Again{}) }

// RetryNotBefore is Retry with a delay of at least d.
func (i Item[K]) RetryNotBefore(err error, d time.Duration) (time.Duration, error) {
	return i.RetryWith(err, Again{NotBefore: d})
}

// Again says how a key that has failed is tried again. The zero Again is that of Retry.
type Again struct {
	// NotBefore is the least delay. Default 0: that of Retry.
	NotBefore time.Duration
	// Exactly, if it is positive, is the delay instead of NotBefore, Options.Backoff and Options.Limiter, such as one that
	// a server has asked for. The failure counts all the same.
	Exactly time.Duration
	// Event is the Event of the reason (its Source is "queue") of a delivery for which the delay was waited for, to tell
	// why. Default EventRetry.
	Event string
}

// RetryWith is Retry as how says.
func (i Item[K]) RetryWith(err error, how Again) (time.Duration, error) {
	if i.q == nil {
		return 0, ErrNotHeld
	}
	d := how.Exactly
	if d <= 0 {
		d = max(how.NotBefore, i.q.backoff(i.Attempt()))
	}
	return d, i.settle(verdict{outcome: hook.QueueRetry, delay: int64(d), why: how.Event}, err)
}

// After settles the key as dealt with, to be delivered again after d, or before if it is added. Its
// failures are forgotten; it keeps its class. Whenever the key is delivered next, this timer is
// over (W4, C3). Zero or less: it is ready at once.
func (i Item[K]) After(d time.Duration) error {
	return i.settle(verdict{outcome: hook.QueueAfter, delay: int64(d)}, nil)
}

// Park settles the key as not dealt with: it waits, for the stated reason, until Wake, RequeueNow, or until atMost has
// passed (zero or less: without bound), and is then ready with the reasons, the class and the attempt that it has
// now. Adds meanwhile are remembered, but do not make it ready. If Wake was called since the key was taken, it is
// ready at once, so that no wake is lost.
func (i Item[K]) Park(reason string, atMost time.Duration) error {
	return i.settle(verdict{outcome: hook.QueuePark, delay: int64(atMost), why: reason}, nil)
}

// Release settles the key as not dealt with, because its worker was interrupted: it is ready again at once, at the
// end of the queue, with the reasons, the class and the attempt that it has now. After ShutDown it is dropped.
func (i Item[K]) Release() error {
	return i.settle(verdict{outcome: hook.QueueRelease}, nil)
}

// dropOwnLocked takes back the immediate adds of a held key if each is its own (W3). It asks without
// the lock, and then about those that have come meanwhile.
func (q *Queue[K]) dropOwnLocked(item *Item[K]) {
	for asked := 0; ; {
		e, ok := q.core.heldBy(item.index, item.delivery)
		if !ok || !e.is(flagAdded) || e.is(flagOwed) {
			return
		}
		adds := q.core.adds[item.index]
		if asked == len(adds) {
			q.core.disown(e)
			return
		}
		if len(adds) > mostAsked || !q.allOwnLocked(item, adds[asked:]) {
			return
		}
		asked = len(adds)
	}
}

// allOwnLocked asks Own about adds, without the lock.
func (q *Queue[K]) allOwnLocked(item *Item[K], adds []Reason) bool {
	q.mu.Unlock()
	defer q.mu.Lock()
	for _, r := range adds {
		if !q.isOwn(item.key, item.delivery, r) {
			return false
		}
	}
	return true
}

func (i Item[K]) settle(v verdict, err error) error {
	q := i.q
	if q == nil {
		return ErrNotHeld
	}
	q.mu.Lock()
	if v.outcome == hook.QueueRetry && q.core.asks {
		q.dropOwnLocked(&i)
	}
	e, ok := q.core.heldBy(i.index, i.delivery)
	if !ok {
		q.misusedLocked(v.outcome.String() + " of an item that is not held")
		return ErrNotHeld
	}
	q.settleLocked(i.index, e, v, err)
	return nil
}

// settleLocked settles a held key and unlocks.
func (q *Queue[K]) settleLocked(i uint32, e *entry[K], v verdict, err error) {
	var now int64
	if q.core.observed || v.outcome != hook.QueueDone || q.core.needsNow(e) {
		now = q.now()
	}
	if q.hooks.Settled == nil {
		q.core.settle(i, e, v, now)
		q.unlock()
		return
	}
	ev := hook.QueueSettled{
		Queue: q.o.Name, Class: int(q.classIn(e.class)), Outcome: v.outcome, Held: time.Duration(now - e.since),
		Delay: time.Duration(v.delay), Attempt: int(q.core.attempts(e)) + 1, Err: err,
	}
	q.core.settle(i, e, v, now)
	q.unlock()
	q.tellSettled(ev)
}
