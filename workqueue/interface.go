// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// RateLimiting is a Queue with the methods of client-go's workqueue.TypedRateLimitingInterface[K], for code that was
// written for that. It behaves as documented there: Get yields what is queued after ShutDown until nothing is left,
// Done belongs to a Get, Add does not cancel AddAfter, of several AddAfter the earliest counts, failures are counted
// until Forget. Of client-go's defects it has none: ShutDownWithDrain waits for what is queued too, any number of
// goroutines may call it, Done without Get has no effect, and what waits is seen in Queue.Len and Queue.Snapshot.
//
// The queue below may be used at the same time; keys are held by one worker whichever way they were taken.
// Of the queue below it has all other methods.
type RateLimiting[K comparable] struct{ *Queue[K] }

// Interface returns the queue with the methods of client-go's workqueue.TypedRateLimitingInterface[K].
func (q *Queue[K]) Interface() *RateLimiting[K] { return &RateLimiting[K]{q} }

// AddAfter adds a key after d, or at once if d is zero or less.
func (r *RateLimiting[K]) AddAfter(key K, d time.Duration) { r.AddWith(key, AddOptions{After: d}) }

// AddRateLimited counts a failure of the key and adds it after its backoff. It is a retry: of a key
// that is held it has the class that the key was taken with, otherwise Normal.
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

// NumRequeues returns how many failures of a key were counted since Forget.
func (r *RateLimiting[K]) NumRequeues(key K) int {
	k, _ := r.Lookup(key)
	return k.Attempts
}

// Len returns how many keys are ready.
func (r *RateLimiting[K]) Len() int { return r.Queue.Len().Ready }

// Get waits until a key is ready and takes it. Shutdown is true when the queue is shut down and nothing is ready.
func (r *RateLimiting[K]) Get() (key K, shutdown bool) {
	item, ok := r.Queue.Get(context.Background())
	return item.key, !ok
}

// Done ends what Get has begun. For a key that is not held it has no effect, and is counted and reported to the hooks.
func (r *RateLimiting[K]) Done(key K) {
	i := r.lockEntry(key)
	if i == 0 || r.core.entries.at(i).state != Held {
		r.misusedLocked("Done of a key that is not held")
		return
	}
	r.settleLocked(i, r.core.entries.at(i), verdict{outcome: hook.QueueDone, keep: true}, nil)
}

// ShutDownWithDrain ends the queue and waits until no key is ready or held, or until ShutDown.
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
