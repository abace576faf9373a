// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"fmt"
)

// ShutDown ends the queue: adds are dropped and counted from now on, keys that wait, are parked or paused are dropped
// and counted now, and Get returns what is ready until there is nothing left, then false. It does not wait. It may be
// called any number of times, by any goroutine (W8).
func (q *Queue[K]) ShutDown() {
	q.mu.Lock()
	first := !q.core.shut
	if first {
		q.core.promote(q.now())
		q.core.shutDown()
		q.timer.Stop()
	}
	q.unlock()
	if first {
		q.tellClosed()
	}
}

// ShuttingDown tells whether the queue was shut down.
func (q *Queue[K]) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.core.shut
}

// Drain shuts the queue down and waits until no key is ready or held, which takes workers that go on calling Get until
// it returns false. If ctx is done first, it returns an error that says what was left and wraps ctx's cause.
func (q *Queue[K]) Drain(ctx context.Context) error {
	q.ShutDown()
	select {
	case <-q.whenDrained():
		return nil
	case <-ctx.Done():
	}
	l := q.Len()
	if l.Ready+l.Held == 0 {
		return nil
	}
	return fmt.Errorf("workqueue %q: drain: %d keys are still ready and %d held: %w", q.o.Name, l.Ready, l.Held, context.Cause(ctx))
}

// whenDrained returns a channel that is closed once the queue is drained.
func (q *Queue[K]) whenDrained() <-chan struct{} {
	q.mu.Lock()
	defer q.unlock()
	if q.watch == nil {
		q.watch = &watch{}
	}
	if q.watch.drained == nil {
		q.watch.drained = make(chan struct{})
	}
	return q.watch.drained
}

func (q *Queue[K]) drainedLocked() bool {
	return q.core.shut && q.core.counts[Ready] == 0 && q.core.counts[Held] == 0
}
