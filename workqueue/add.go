// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// AddOptions describe an add. The zero AddOptions adds a key at once, in class Normal, without a reason.
type AddOptions struct {
	// Class is how urgent it is. Default Normal. A class that is not configured counts as the next lower one that
	// is, or else as the lowest.
	Class Class
	// After is how long to wait first; zero or less: not at all.
	After time.Duration
	// Reason is why. The zero Reason is not recorded; a delivery that has no other is reported as EventAdded.
	Reason Reason
}

// Adder makes keys due and looks at them, but cannot take them. A *Queue is one.
type Adder[K comparable] interface {
	// Add makes a key due now, see [Queue.Add].
	Add(key K)
	// AddWith makes a key due as how states, see [Queue.AddWith].
	AddWith(key K, how AddOptions)
	// AddAll makes many keys due, see [Queue.AddAll].
	AddAll(keys []K, how AddOptions)
	// Lookup returns where a key is, see [Queue.Lookup].
	Lookup(key K) (state KeyState[K], known bool)
}

// Add adds a key at once. While the key is queued already, it does nothing (W2); while it is held, the key is
// delivered once more after it was settled (W3); while it is paused or parked, the add is remembered. After
// ShutDown, and for a key that is not equal to itself, the add is dropped and counted.
func (q *Queue[K]) Add(key K) {
	w := who[K]{key: key}
	if !q.identify(&w) {
		return
	}
	q.lock()
	i := q.core.find(key, w.hash)
	if q.core.merges(i, q.core.normal) {
		q.mu.Unlock()
		return
	}
	q.addLocked(&w, i, q.core.normal, &AddOptions{})
}

// AddWith adds a key as how describes.
func (q *Queue[K]) AddWith(key K, how AddOptions) { q.addTo(key, q.laneOf(how.Class), &how) }

func (q *Queue[K]) addTo(key K, lane uint8, how *AddOptions) {
	w := who[K]{key: key}
	if q.identify(&w) {
		q.lock()
		q.addLocked(&w, q.core.find(key, w.hash), lane, how)
	}
}

// addLocked adds a key, whose entry is i, or none, and unlocks.
func (q *Queue[K]) addLocked(w *who[K], i uint32, lane uint8, how *AddOptions) {
	if q.o.Tenant != nil && i == 0 { // of a key that has an entry it is known
		q.mu.Unlock()
		w.tenant, w.weight = q.tenant(w.key)
		q.lock()
	}
	switch {
	case how.After > 0:
		q.core.addAfter(w, lane, &how.Reason, int64(how.After))
	case !q.core.asks || !q.ownLocked(w, how):
		q.core.add(w, lane, &how.Reason)
	}
	q.unlock()
	q.tellDelayed(lane, how)
}

func (q *Queue[K]) tellDelayed(lane uint8, how *AddOptions) {
	if how.After > 0 {
		tell(&q.host, "Hooks.Delayed", q.hooks.Load().Delayed, hook.QueueDelayed{Queue: q.o.Name, Class: int(q.classIn(lane)), Delay: how.After})
	}
}

// ownLocked reports whether an add of a key in backoff is its own. It asks Own without the lock, as
// often as the key's state changes meanwhile.
func (q *Queue[K]) ownLocked(w *who[K], how *AddOptions) bool {
	for asked := uint64(0); ; {
		delivery, in := q.core.inBackoff(w)
		if !in || delivery == asked {
			return false
		}
		q.mu.Unlock()
		w.tenant, w.weight = q.tenant(w.key) // the key may be unknown by the time that the lock is held again
		own := q.isOwn(w.key, delivery, how.Reason)
		q.lock()
		if now, in := q.core.inBackoff(w); own && in && now == delivery {
			return true
		}
		if !own {
			asked = delivery
		}
	}
}

// AddAll adds many keys under one lock, as AddWith does, those last that Own has to be asked about.
func (q *Queue[K]) AddAll(keys []K, how AddOptions) {
	ws := make([]who[K], 0, len(keys))
	for _, key := range keys {
		w := who[K]{key: key}
		if q.prepare(&w) {
			ws = append(ws, w)
		}
	}
	var asked []K // keys in backoff, about which Own has to be asked
	lane := q.laneOf(how.Class)
	q.lock()
	for i := range ws {
		w := &ws[i]
		if how.After > 0 {
			q.core.addAfter(w, lane, &how.Reason, int64(how.After))
		} else if _, in := q.core.inBackoff(w); in && q.core.asks {
			asked = append(asked, w.key)
		} else {
			q.core.add(w, lane, &how.Reason)
		}
	}
	q.unlock()
	for range ws {
		q.tellDelayed(lane, &how)
	}
	for _, key := range asked {
		q.AddWith(key, how)
	}
}

// Wake ends a Park: the key is ready. A key that is held will not be parked by its Park to come. It
// reports whether the key was one or the other; others are left alone.
func (q *Queue[K]) Wake(key K) bool {
	w := who[K]{key: key}
	if !q.identify(&w) {
		return false
	}
	q.lock()
	defer q.unlock()
	return q.core.wake(&w)
}

// Pause keeps a key from being delivered until Resume, whether the queue knows it yet or not. Adds and due times
// meanwhile are remembered. One that is held stays so until it is settled. After ShutDown it has no effect.
func (q *Queue[K]) Pause(key K) {
	if w := (who[K]{key: key}); q.prepare(&w) {
		q.lock()
		defer q.unlock()
		q.core.pause(&w)
	}
}

// Resume ends a Pause. The key is ready if it was when it was paused or has been added or become due since.
func (q *Queue[K]) Resume(key K) {
	if w := (who[K]{key: key}); q.identify(&w) {
		q.lock()
		defer q.unlock()
		q.core.resume(&w)
	}
}

// PauseAll stops all deliveries until ResumeAll: Get waits. Keys go on becoming ready, and Len counts them as such.
// If the queue is shut down meanwhile, they are dropped, like keys that are paused. After ShutDown it has no effect.
func (q *Queue[K]) PauseAll() { q.pauseAll(true) }

// ResumeAll ends PauseAll. Keys that were paused one by one stay paused. After ShutDown it has no effect.
func (q *Queue[K]) ResumeAll() { q.pauseAll(false) }

func (q *Queue[K]) pauseAll(to bool) {
	q.lock()
	defer q.unlock()
	if !q.core.shut {
		q.core.pausedAll = to
		q.core.fresh = q.core.counts[Ready]
	}
}

// RequeueNow makes a key ready whatever it waits for (a delay, a backoff, MinInterval, a Park), in the class of
// Interactive. One that is held is delivered once more at once after it is settled, however it is settled. A
// paused key stays paused and is ready when it is resumed. The number of its failures stays. The reason of the
// zero Reason is EventRequeueNow.
func (q *Queue[K]) RequeueNow(key K, why Reason) {
	if why.empty() {
		why = Reason{Source: sourceQueue, Event: EventRequeueNow}
	}
	if w := (who[K]{key: key}); q.prepare(&w) {
		q.lock()
		defer q.unlock()
		q.core.requeue(&w, &why)
	}
}

// Forget forgets a key's failures, so that its next backoff is the first again. It changes nothing else.
func (q *Queue[K]) Forget(key K) {
	if i := q.lockEntry(key); i != 0 {
		q.core.clear(i)
	}
	q.unlock()
}
