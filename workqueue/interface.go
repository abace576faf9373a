// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// RateLimiting is a view of a Queue with the methods of client-go's
// workqueue.TypedRateLimitingInterface[K], and all other methods of Queue. View and Queue may be
// used at the same time, from any goroutine: a key still has one holder.
//
// It behaves as client-go documents, without these defects of client-go:
//
//   - ShutDownWithDrain ignores queued keys and wakes only one of its callers.
//   - Done without Get queues a key twice.
//   - Waiting keys are invisible. Here Queue.Len and Queue.Snapshot show them.
type RateLimiting[K comparable] struct{ *Queue[K] }

// Interface returns the queue as client-go's workqueue.TypedRateLimitingInterface[K].
func (q *Queue[K]) Interface() *RateLimiting[K] { return &RateLimiting[K]{q} }

// AddAfter adds a key after d, or at once if d is zero or negative.
func (r *RateLimiting[K]) AddAfter(key K, d time.Duration) { r.AddWith(key, AddOptions{After: d}) }

// AddRateLimited counts a failure of the key and adds it after its backoff, as a retry. A held key
// keeps its class; any other key gets Normal.
func (r *RateLimiting[K]) AddRateLimited(key K) {
	w := who[K]{key: key}
	if !r.prepare(&w) {
		return
	}
	r.lock()
	n, lane := r.core.fail(&w)
	r.unlock()
	if n > 0 {
		r.addTo(key, lane, &AddOptions{After: r.backoff(n)})
	}
}

// NumRequeues returns the number of failures of a key since Forget.
func (r *RateLimiting[K]) NumRequeues(key K) int {
	k, _ := r.Lookup(key)
	return k.Attempts
}

// Len returns the number of ready keys.
func (r *RateLimiting[K]) Len() int { return r.Queue.Len().Ready }

// Get waits until a key is ready and takes it. Shutdown is true after shutdown, if no key is ready.
func (r *RateLimiting[K]) Get() (key K, shutdown bool) {
	item, ok := r.Queue.Get(context.Background())
	return item.key, !ok
}

// Done settles a key from Get and keeps its failures. A key that is not held is only reported.
func (r *RateLimiting[K]) Done(key K) {
	i := r.lockEntry(key)
	if i == 0 || r.core.entries.at(i).state != Held {
		r.misusedLocked("Done of a key that is not held")
		return
	}
	r.settleLocked(i, r.core.entries.at(i), verdict{outcome: hook.QueueDone, class: noClass, keep: true}, nil)
}

// ShutDownWithDrain shuts the queue down and waits until no key is ready or held, or until ShutDown
// is called.
func (r *RateLimiting[K]) ShutDownWithDrain() {
	q := r.Queue
	q.shutDown(false)
	q.lock()
	if q.forced == nil {
		q.forced = make(chan struct{})
	}
	forced := q.forced
	q.unlock()
	select {
	case <-q.whenDrained():
	case <-forced:
	}
}
