// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"errors"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// ErrNotHeld is returned for an Item that was settled before, and for the zero Item. Nothing has happened (W9).
var ErrNotHeld = errors.New("workqueue: the item is not held: it was settled before")

// Item is a key that a worker has taken. It is a small value that may be copied and handed on; all copies are one
// token. Settle it exactly once, with Done, Retry (RetryWith), After, Park or Release: until then no other worker gets
// the key. A second settling has no effect, returns ErrNotHeld and is counted and reported to the hooks (W9). Settling
// works after ShutDown too; what would then have to wait is dropped and counted.
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

// Queued returns when the key became ready, or the zero time if Options.Reasons is negative and Hooks is not set.
func (i Item[K]) Queued() time.Time {
	if i.q == nil || !i.q.core.stamped {
		return time.Time{}
	}
	return i.q.core.time(i.queued)
}

// Reasons returns a copy of the reasons of this delivery: the first and the newest Options.Reasons; or EventAdded, if
// it was added without any. It also returns how many were dropped between the first and the second. It returns nil
// once the item is settled.
func (i Item[K]) Reasons() (reasons []Reason, dropped int) {
	if i.q == nil {
		return nil, 0
	}
	i.q.lock()
	defer i.q.unlock()
	e, ok := i.q.core.heldBy(i.index, i.delivery)
	if !ok {
		return nil, 0
	}
	taken, _, _ := i.q.core.lists(e)
	return i.q.core.delivered(taken, i.queued), int(taken.dropped)
}

// Done settles the key as dealt with: its failures are forgotten. Use it also for what should not be tried again.
func (i Item[K]) Done() error {
	return i.settle(verdict{outcome: hook.QueueDone}, nil)
}

// Retry settles the key as failed: it is ready again after Options.Backoff, or, where that is
// longer, as soon as Options.Limiter allows, or at once if it was added while it was held. It keeps
// its class. Retry returns the delay. The error is only passed to the hooks and may be nil.
func (i Item[K]) Retry(err error) (time.Duration, error) { return i.RetryWith(err, RetryOptions{}) }

// RetryOptions describe when a key that has failed is tried again. The zero RetryOptions is that of Retry.
type RetryOptions struct {
	// NotBefore is the least delay. Default 0: that of Retry.
	NotBefore time.Duration
	// Exactly, if it is positive, is the delay instead of NotBefore, Options.Backoff and Options.Limiter, such as one that
	// a server has asked for. The failure still counts.
	Exactly time.Duration
	// Event is the Event of the reason (its Source is "queue") of the delivery at the end of the delay. Default EventRetry.
	Event string
}

// RetryWith is Retry as how describes.
func (i Item[K]) RetryWith(err error, how RetryOptions) (time.Duration, error) {
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
		if len(adds) > mostAsked {
			return
		}
		q.mu.Unlock()
		own := q.allOwn(item.key, item.delivery, adds[asked:])
		q.lock()
		if !own {
			return
		}
		asked = len(adds)
	}
}

func (i Item[K]) settle(v verdict, err error) error {
	q := i.q
	if q == nil {
		return ErrNotHeld
	}
	q.lock()
	if v.outcome == hook.QueueRetry && q.core.asks {
		q.dropOwnLocked(&i)
	}
	e, ok := q.core.heldBy(i.index, i.delivery)
	if !ok {
		q.misusedLocked(string(v.outcome) + " of an item that is not held")
		return ErrNotHeld
	}
	q.settleLocked(i.index, e, v, err)
	return nil
}

// settleLocked settles a held key and unlocks.
func (q *Queue[K]) settleLocked(i uint32, e *entry[K], v verdict, err error) {
	settled := q.hooks.Load().Settled
	if settled == nil {
		q.core.settle(i, e, v)
		q.unlock()
		return
	}
	ev := hook.QueueSettled{
		Queue: q.o.Name, Class: int(q.classIn(e.class)), Outcome: v.outcome, Held: time.Duration(q.core.now() - e.since),
		Delay: time.Duration(v.delay), Attempt: int(q.core.attempts(e)) + 1, Err: err,
	}
	q.core.settle(i, e, v)
	q.unlock()
	tell(&q.host, "Hooks.Settled", settled, ev)
}

// Get waits until a key is ready, takes it and returns it: it is held by the caller alone (W1), who must settle it.
// It returns false when ctx is done, without taking a key, and when the queue is shut down and no key is ready.
func (q *Queue[K]) Get(ctx context.Context) (item Item[K], ok bool) {
	if ctx.Err() != nil {
		return item, false
	}
	q.lock()
	for {
		if i := q.core.take(); i != 0 {
			q.handOut(i, &item)
			return item, true
		}
		if q.core.shut {
			q.unlock()
			return item, false
		}
		w := q.waiters.join()
		q.unlock()
		woken := q.waiters.wait(ctx, w)
		q.lock()
		q.waiters.left(w, woken)
		if ctx.Err() != nil {
			q.core.fresh++ // if this one was woken, another must be instead
			q.unlock()
			return item, false
		}
	}
}

// TryGet is Get without waiting: it returns false if no key is ready, or all are paused.
func (q *Queue[K]) TryGet() (item Item[K], ok bool) {
	q.lock()
	if i := q.core.take(); i != 0 {
		q.handOut(i, &item)
		return item, true
	}
	q.unlock()
	return item, false
}

// handOut makes item that of an entry that was taken, and unlocks.
func (q *Queue[K]) handOut(i uint32, item *Item[K]) {
	e := q.core.entries.at(i)
	item.q, item.key, item.index, item.delivery = q, e.key, i, e.delivery
	item.attempt, item.class, item.queued = q.core.attempts(e), e.class, q.core.queued
	since := e.since
	q.unlock()
	if taken := q.hooks.Load().Taken; taken != nil {
		tell(&q.host, "Hooks.Taken", taken, hook.QueueTaken{
			Queue: q.o.Name, Class: int(item.Class()), Waited: time.Duration(since - item.queued), Attempt: item.Attempt(),
		})
	}
}
