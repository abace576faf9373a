// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"errors"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// ErrNotHeld is returned by a settle of an Item that was settled before, or of the zero Item. The
// call changes nothing.
var ErrNotHeld = errors.New("workqueue: settle: the item is not held; settle each item once")

// Item is a key that a worker has taken. Settle it exactly once, with Done, Retry (or RetryWith),
// After, GiveUp, Park or Release. Until then no other worker gets the key. You may copy an Item;
// settling one copy settles all.
//
// After ShutDown, a key that would have to wait is dropped and counted.
type Item[K comparable] struct {
	q        *Queue[K]
	key      K
	delivery uint64
	queued   int64
	index    uint32
	attempt  uint32
	class    uint8
	next     uint8 // lane for adds of InClass's class, or noClass
}

// Key returns the key.
func (i Item[K]) Key() K { return i.key }

// Attempt returns 1 for a key without failures since its last success, 2 after one, and so on.
func (i Item[K]) Attempt() int { return int(i.attempt) + 1 }

// Delivery returns the number of this delivery: unique within the queue, and increasing.
func (i Item[K]) Delivery() uint64 { return i.delivery }

// Class returns the class with which the key was taken.
func (i Item[K]) Class() Class {
	if i.q == nil {
		return Normal
	}
	return i.q.classIn(i.class)
}

// Tenant returns the key's tenant, or "" if Options.Tenant is nil.
func (i Item[K]) Tenant() string {
	if i.q == nil {
		return ""
	}
	name, _ := i.q.tenant(i.key)
	return name
}

// InClass returns the item with a class for its next delivery. Only Retry, RetryWith and After of
// the returned item use it. An add in a higher class still raises the key.
func (i Item[K]) InClass(c Class) Item[K] {
	if i.q != nil {
		i.next = i.q.laneOf(c)
	}
	return i
}

// Queued returns when the key became ready, or zero if Options.Reasons < 0 and no observer gets
// events of the queue.
func (i Item[K]) Queued() time.Time {
	if i.q == nil || i.queued == never {
		return time.Time{}
	}
	return i.q.core.time(i.queued)
}

// NewestReason returns this delivery's newest reason, but one of the queue only if there is no
// other. It returns false after the settle, and for a key without reasons.
func (i Item[K]) NewestReason() (newest Reason, ok bool) {
	if i.q == nil {
		return newest, false
	}
	i.q.mu.Lock() // nothing changes, so nothing is to be woken
	defer i.q.mu.Unlock()
	e, ok := i.q.core.heldBy(i.index, i.delivery)
	if !ok {
		return newest, false
	}
	var best *note
	taken, _, _ := i.q.core.lists(e)
	for _, n := range i.q.core.notes.all(taken) {
		if best == nil || best.cause.source == sourceQueue || n.cause.source != sourceQueue {
			best = n
		}
	}
	if best == nil {
		return newest, false
	}
	return i.q.core.notes.read(best), true
}

// Reasons returns a copy of this delivery's reasons: the first, then up to Options.Reasons of the
// newest. Dropped counts those in between. After the settle, Reasons returns nil.
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

// Done settles the key as finished and forgets its failures. Use it too if a retry cannot help.
func (i Item[K]) Done() error {
	return i.settle(&verdict{outcome: hook.QueueDone}, nil)
}

// Retry settles the key as failed. It returns the delay until the next delivery, in the same class:
// Options.Backoff, or longer if Options.Limiter requires it. If the key was added while held, and
// not only by itself (Options.Own), it is ready at once. hook.QueueSettled has the error, which may
// be nil.
func (i Item[K]) Retry(err error) (time.Duration, error) { return i.RetryWith(err, RetryOptions{}) }

// RetryOptions describe when a failed key is retried. The zero value is what Retry uses.
type RetryOptions struct {
	// NotBefore is the minimum delay. Default 0: the delay of Retry.
	NotBefore time.Duration
	// Exactly, if positive, is the delay, for example one that a server asked for. It replaces
	// NotBefore, Options.Backoff and Options.Limiter. The failure still counts. Default 0:
	// no effect.
	Exactly time.Duration
	// Uncounted keeps the number of failures as it is. Default: false, the failure counts.
	Uncounted bool
	// Event is the Event of the next delivery's reason; its Source is "queue". Default EventRetry.
	Event string
}

// RetryWith is Retry with options.
func (i Item[K]) RetryWith(err error, how RetryOptions) (time.Duration, error) {
	if i.q == nil {
		return 0, ErrNotHeld
	}
	d := how.Exactly
	if d <= 0 {
		d = max(how.NotBefore, i.q.backoff(i.Attempt()))
	}
	v := verdict{outcome: hook.QueueRetry, delay: int64(d), why: how.Event, keep: how.Uncounted}
	wrong := i.settle(&v, err)
	return time.Duration(v.delay), wrong
}

// After settles the key as finished, forgets its failures, and delivers it again after d, in the
// same class. Zero or negative: at once. Any delivery before then cancels this timer.
func (i Item[K]) After(d time.Duration) error {
	return i.settle(&verdict{outcome: hook.QueueAfter, delay: int64(d)}, nil)
}

// GiveUp settles the key as failed, without a retry. The key stays idle and keeps its failures. The
// next add by others (see Options.Own) delivers it as Attempt 1, even if it was made while the key
// was held. hook.QueueSettled has the error, which may be nil.
func (i Item[K]) GiveUp(err error) error {
	return i.settle(&verdict{outcome: hook.QueueGiveUp}, err)
}

// Park settles the key as unfinished. It is ready again after Wake, RequeueNow or atMost (zero or
// negative: no limit), with the reasons, class and attempt of this delivery. Adds are recorded but
// do not make it ready. If Wake was called while the key was held, it is ready at once, so no wake
// is lost.
func (i Item[K]) Park(reason string, atMost time.Duration) error {
	return i.settle(&verdict{outcome: hook.QueuePark, delay: int64(atMost), why: reason}, nil)
}

// Release settles the key as unfinished: it is ready at once, at the end of the queue, with the
// reasons, class and attempt of this delivery. After ShutDown it is dropped.
func (i Item[K]) Release() error {
	return i.settle(&verdict{outcome: hook.QueueRelease}, nil)
}

// dropOwnLocked calls Own without the lock, and once more for adds that arrive meanwhile.
func (q *Queue[K]) dropOwnLocked(item *Item[K], v *verdict) {
	found := *v
	for asked := 0; ; {
		e, ok := q.core.heldBy(item.index, item.delivery)
		if !ok || !e.is(flagAdded) || e.is(flagOwed) {
			return
		}
		adds := q.core.adds[item.index]
		if asked == len(adds) {
			q.core.disown(e)
			if found.soon > 0 && (v.outcome == hook.QueueGiveUp || found.soon < v.delay) {
				found.delay = found.soon
			}
			*v = found
			return
		}
		if len(adds) > mostAsked {
			return
		}
		q.mu.Unlock()
		own := q.allOwn(item.key, item.delivery, adds[asked:], &found)
		q.lock()
		if !own {
			return
		}
		asked = len(adds)
	}
}

func (i Item[K]) settle(v *verdict, err error) error {
	q := i.q
	if q == nil {
		return ErrNotHeld
	}
	v.class = i.next
	q.lock()
	if v.failed() && q.core.asks {
		q.dropOwnLocked(&i, v)
	}
	e, ok := q.core.heldBy(i.index, i.delivery)
	if !ok {
		q.misusedLocked(string(v.outcome) + " of an item that is not held")
		return ErrNotHeld
	}
	q.settleLocked(i.index, e, *v, err)
	return nil
}

// settleLocked also unlocks.
func (q *Queue[K]) settleLocked(i uint32, e *entry[K], v verdict, err error) {
	if !q.gets.settled {
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
	tell(&q.host, &q.used.settled, ev)
}
