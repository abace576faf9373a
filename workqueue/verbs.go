// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import "hash/maphash"

// Wake ends a Park: the key is ready. A key that is held will not be parked by its Park to come. It tells whether the
// key was one or the other; others are left alone.
func (q *Queue[K]) Wake(key K) bool {
	w := who[K]{key: key}
	if !q.identify(&w) {
		return false
	}
	q.mu.Lock()
	defer q.unlock()
	return q.core.wake(&w, q.now())
}

// Pause keeps a key from being delivered until Resume, whether the queue knows it yet or not. Adds and due times
// meanwhile are remembered. One that is held stays so until it is settled. After ShutDown it has no effect.
func (q *Queue[K]) Pause(key K) {
	if w := (who[K]{key: key}); q.prepare(&w) {
		q.mu.Lock()
		defer q.unlock()
		q.core.pause(&w, q.now())
	}
}

// Resume ends a Pause. The key is ready if it was when it was paused or has been added or become due since.
func (q *Queue[K]) Resume(key K) {
	if w := (who[K]{key: key}); q.identify(&w) {
		q.mu.Lock()
		defer q.unlock()
		q.core.resume(&w, q.now())
	}
}

// PauseAll stops all deliveries until ResumeAll: Get waits. Keys go on becoming ready, and Len counts them as such.
// If the queue is shut down meanwhile, they are dropped, like keys that are paused. After ShutDown it has no effect.
func (q *Queue[K]) PauseAll() { q.pauseAll(true) }

// ResumeAll ends PauseAll. Keys that were paused one by one stay paused. After ShutDown it has no effect.
func (q *Queue[K]) ResumeAll() { q.pauseAll(false) }

// AllPaused tells whether PauseAll holds.
func (q *Queue[K]) AllPaused() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.core.pausedAll
}

func (q *Queue[K]) pauseAll(to bool) {
	q.mu.Lock()
	defer q.unlock()
	if !q.core.shut {
		q.core.pausedAll = to
		q.core.fresh = q.core.counts[Ready]
	}
}

// RequeueNow makes a key ready whatever it waits for (a delay, a backoff, MinInterval, a Park), in the class of
// Interactive. One that is held is delivered once more at once after it is settled, however it is settled; that
// cannot be withdrawn. A paused key stays paused and is ready when it is resumed. The number of its failures stays.
func (q *Queue[K]) RequeueNow(key K) {
	q.RequeueNowFor(key, Reason{Source: sourceQueue, Event: EventRequeueNow})
}

// RequeueNowFor is RequeueNow for a reason of the host. The zero Reason is not recorded.
func (q *Queue[K]) RequeueNowFor(key K, why Reason) {
	if w := (who[K]{key: key}); q.prepare(&w) {
		q.mu.Lock()
		defer q.unlock()
		q.core.requeue(&w, reasonIn(&why), q.now())
	}
}

// Forget forgets a key's failures, so that its next backoff is the first again. It changes nothing else.
func (q *Queue[K]) Forget(key K) {
	i := q.lockEntry(key)
	if i != 0 {
		q.core.clear(i)
	}
	q.unlock()
}

// lockEntry locks, and returns a key's entry, or 0. The key that was taken last is found without a
// hash.
func (q *Queue[K]) lockEntry(key K) uint32 {
	if q.unsure && !sound(key) {
		q.mu.Lock()
		q.core.drop(dropUnequal)
		return 0
	}
	q.mu.Lock()
	if i := q.core.last; q.core.entries.has(i) {
		if e := q.core.entries.at(i); e.is(flagUsed) && e.key == key {
			return i
		}
	}
	return q.core.find(key, uint32(maphash.Comparable(q.seed, key)))
}
