// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// RateLimitingInterface has the methods of client-go's workqueue.TypedRateLimitingInterface[K], and
// so implements it. Package workqueue does not import client-go.
type RateLimitingInterface[K comparable] interface {
	Add(key K)
	AddAfter(key K, d time.Duration)
	AddRateLimited(key K)
	Forget(key K)
	NumRequeues(key K) int
	Len() int
	Get() (key K, shutdown bool)
	Done(key K)
	ShutDown()
	ShutDownWithDrain()
	ShuttingDown() bool
}

// Interface returns a view of the queue for code that takes client-go's interface. View and
// queue may be used at the same time, from any goroutine: a key still has one holder. The view
// behaves as client-go documents, without these defects of client-go:
//
//   - ShutDownWithDrain ignores queued keys and wakes only one of its callers.
//   - Done without Get queues a key twice.
//   - Waiting keys are invisible. Here [Queue.Len] and [Queue.Snapshot] show them.
//
// Done of the view keeps the failures of a key, and ShutDown ends ShutDownWithDrain.
func (q *Queue[K]) Interface() RateLimitingInterface[K] { return &rateLimiting[K]{q} }

type rateLimiting[K comparable] struct{ *Queue[K] }

func (r *rateLimiting[K]) AddAfter(key K, d time.Duration) { r.AddWith(key, AddOptions{After: d}) }

// AddRateLimited counts a failure of the key and adds it after its backoff, as a retry. A held key
// keeps its class; any other key gets Normal.
func (r *rateLimiting[K]) AddRateLimited(key K) {
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

func (r *rateLimiting[K]) NumRequeues(key K) int {
	k, _ := r.Lookup(key)
	return k.Attempts
}

func (r *rateLimiting[K]) Len() int { return r.Queue.Len().Ready }

func (r *rateLimiting[K]) Get() (key K, shutdown bool) {
	item, ok := r.Queue.Get(context.Background())
	return item.key, !ok
}

func (r *rateLimiting[K]) Done(key K) {
	i := r.lockEntry(key)
	if i == 0 || r.core.entries.At(i).state != Held {
		r.misusedLocked("Done of a key that is not held")
		return
	}
	r.settleLocked(i, r.core.entries.At(i), verdict{outcome: hook.QueueDone, class: noClass, keep: true}, nil)
}

func (r *rateLimiting[K]) ShutDownWithDrain() {
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
