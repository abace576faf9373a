// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// AddOptions describe an add. The zero value adds a key at once, in class Normal, without a reason.
type AddOptions struct {
	// Class is how urgent the key is. Default Normal. A class that is not configured counts as the
	// next lower configured one, or else as the lowest.
	Class Class
	// After is the delay before the key is ready. Default 0; negative counts as 0.
	After time.Duration
	// Reason is why the key is added. The zero Reason is not recorded.
	Reason Reason
}

// Adder is the part of Queue that adds and looks up keys but does not take them.
type Adder[K comparable] interface {
	Add(key K)
	AddWith(key K, how AddOptions)
	AddAll(keys []K, how AddOptions)
	Lookup(key K) (state KeyState[K], known bool)
}

// Add adds a key at once, in class Normal. An add of a key that is
//
//   - ready already, in class Normal or higher, does nothing;
//   - held causes one more delivery after the settle;
//   - paused or parked is recorded, and delivers nothing until Resume or Wake.
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

// AddWith is Add with options.
func (q *Queue[K]) AddWith(key K, how AddOptions) {
	q.addTo(key, q.laneOf(how.Class), &how)
}

func (q *Queue[K]) addTo(key K, lane uint8, how *AddOptions) {
	w := who[K]{key: key}
	if !q.identify(&w) {
		return
	}
	q.lock()
	i := q.core.find(key, w.hash)
	if how.After <= 0 && q.core.merges(i, lane) { // Own is for keys that are not ready
		q.core.promote() // reasons of due times come before this one
		q.core.record(i, q.core.entries.At(i), &how.Reason)
		q.unlock()
		return
	}
	q.addLocked(&w, i, lane, how)
}

// addLocked adds a key with entry i, or 0 if it has none, and unlocks.
func (q *Queue[K]) addLocked(w *who[K], i uint32, lane uint8, how *AddOptions) {
	if q.o.Tenant != nil && i == 0 { // an entry has a tenant already
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
	if how.After > 0 && q.gets.delayed {
		tell(&q.host, &q.used.delayed, hook.QueueDelayed{Queue: q.o.Name, Class: int(q.classIn(lane)), Delay: how.After})
	}
}

// ownLocked calls Own without the lock, and again if the key was delivered meanwhile.
func (q *Queue[K]) ownLocked(w *who[K], how *AddOptions) bool {
	for asked := uint64(0); ; {
		delivery, in := q.core.inBackoff(w)
		if !in || delivery == asked {
			return false
		}
		q.mu.Unlock()
		// The key may be forgotten before the queue is locked again.
		w.tenant, w.weight = q.tenant(w.key)
		own, within := q.isOwn(w.key, delivery, how.Reason)
		q.lock()
		if now, in := q.core.inBackoff(w); own && in && now == delivery {
			q.core.hasten(w, int64(within), &how.Reason)
			return true
		}
		if !own {
			asked = delivery
		}
	}
}

// AddAll adds many keys under one lock. Keys that need a call of Options.Own come last, one at a
// time.
func (q *Queue[K]) AddAll(keys []K, how AddOptions) {
	if len(keys) == 1 { // as most events have
		q.AddWith(keys[0], how)
		return
	}
	ws := make([]who[K], 0, len(keys))
	for _, key := range keys {
		w := who[K]{key: key}
		if q.prepare(&w) {
			ws = append(ws, w)
		}
	}
	var asked []K // need a call of Own
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

// Wake makes a parked key ready. If the key is held, the next Park of this delivery ends at once.
// Wake returns false for other keys.
func (q *Queue[K]) Wake(key K) bool {
	w := who[K]{key: key}
	if !q.identify(&w) {
		return false
	}
	q.lock()
	defer q.unlock()
	return q.core.wake(&w)
}

// PauseKey holds back a key, known or not, until ResumeKey. Adds and due times are recorded. A held
// key stays with its worker. After ShutDown, PauseKey has no effect.
func (q *Queue[K]) PauseKey(key K) {
	if w := (who[K]{key: key}); q.prepare(&w) {
		q.lock()
		defer q.unlock()
		q.core.pause(&w)
	}
}

// ResumeKey ends a PauseKey. The key is ready if it was ready before, or was added or became due
// during the pause.
func (q *Queue[K]) ResumeKey(key K) {
	if w := (who[K]{key: key}); q.identify(&w) {
		q.lock()
		defer q.unlock()
		q.core.resume(&w)
	}
}

// Pause stops all deliveries until Resume: Get waits. Keys still become ready, and Len counts
// them. ShutDown drops them. After ShutDown, Pause has no effect.
func (q *Queue[K]) Pause() { q.pauseAll(true) }

// Resume ends Pause, but not PauseKey. After ShutDown, it has no effect.
func (q *Queue[K]) Resume() { q.pauseAll(false) }

func (q *Queue[K]) pauseAll(to bool) {
	q.lock()
	defer q.unlock()
	if !q.core.shut {
		q.core.pausedAll = to
		q.core.fresh = q.core.counts[Ready]
	}
}

// RequeueNow makes a key ready in class Interactive and ends any wait, also of a Park. A held key
// is delivered once more right after any settle, and a paused key after Resume. The failures still
// count. The reason defaults to one with EventRequeueNow.
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

// Forget resets a key's failures, so its next backoff is the shortest.
func (q *Queue[K]) Forget(key K) {
	if i := q.lockEntry(key); i != 0 {
		q.core.clear(i)
	}
	q.unlock()
}
