// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"fmt"
	"strings"

	"github.com/setpoint-dev/setpoint/hook"
)

// ShutDown shuts the queue down and does not wait. Waiting, parked and paused keys, and later adds,
// are dropped and counted. Get returns the ready keys until none is left, then false.
func (q *Queue[K]) ShutDown() { q.shutDown(true) }

func (q *Queue[K]) shutDown(force bool) {
	q.lock()
	first, forced := !q.core.shut, q.forced
	if first {
		q.core.shutDown()
		q.waiters.timer.Stop()
	}
	if force && forced != nil {
		q.forced = nil
		defer close(forced)
	}
	q.unlock()
	if first {
		q.send(&hook.QueueClosed{Queue: q.o.Name, Of: q})
	}
}

// ShuttingDown reports whether the queue was shut down.
func (q *Queue[K]) ShuttingDown() bool {
	q.lock()
	defer q.unlock()
	return q.core.shut
}

// Drain shuts the queue down and waits until no key is ready or held. Workers must call Get until
// it returns false. If ctx ends first, the error counts the keys left and wraps ctx's cause.
func (q *Queue[K]) Drain(ctx context.Context) error {
	q.shutDown(false)
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

func (q *Queue[K]) whenDrained() <-chan struct{} {
	q.lock()
	defer q.unlock()
	if q.watch.drained == nil {
		q.watch.drained = make(chan struct{})
	}
	return q.watch.drained
}

// Quiet waits for a moment without work in progress, for tests and scripts. Work in progress is a
// key that
//
//   - is ready, held or parked;
//   - waits for MinInterval, or for a backoff of at most a second, such as after a conflict.
//
// Other waiting keys and paused keys do not count. During Pause, only held keys count.
//
// Quiet returns the number of deliveries until that moment. If ctx ends first, the error counts the
// keys in progress and names up to five per state.
//
// While a call waits, other calls of the queue may scan all due times.
func (q *Queue[K]) Quiet(ctx context.Context) (deliveries uint64, err error) {
	q.lock()
	q.core.promote()
	if q.watch.lull == nil {
		q.watch.lull = &lull{come: make(chan struct{})}
	}
	l := q.watch.lull
	q.unlock() // ends the wait at once if the queue is quiet
	select {
	case <-l.come:
		return l.deliveries, nil
	default:
	}
	select {
	case <-l.come:
		return l.deliveries, nil
	case <-ctx.Done():
		q.lock()
		busy := q.core.underWay()
		q.unlock()
		return 0, fmt.Errorf("workqueue %q: %s: %w", q.o.Name, unquiet(busy), context.Cause(ctx))
	}
}

func unquiet[K comparable](keys []KeyState[K]) string {
	var words []string
	for _, state := range []State{Ready, Held, Parked, Waiting} {
		var names []string
		n := 0
		for _, k := range keys {
			if k.State != state {
				continue
			}
			if n++; n > mostNamed {
				continue
			}
			name := fmt.Sprint(k.Key)
			if k.ParkReason != "" {
				name += " (" + k.ParkReason + ")"
			}
			names = append(names, name)
		}
		if n > mostNamed {
			names = append(names, "...")
		}
		if n > 0 {
			words = append(words, fmt.Sprintf("%d %s: %s", n, state, strings.Join(names, ", ")))
		}
	}
	if len(words) == 0 {
		return "the queue has become quiet only now"
	}
	return strings.Join(words, "; ")
}

const mostNamed = 5

func (c *core[K]) underWay() (keys []KeyState[K]) {
	c.all(func(_ uint32, e *entry[K]) {
		if e.state != Held && (c.pausedAll || e.state != Ready && e.state != Parked && !c.dueSoon(e)) {
			return
		}
		k := KeyState[K]{Key: e.key, State: e.state}
		if x := c.extra(e); x != nil && e.state == Parked {
			k.ParkReason = x.why
		}
		keys = append(keys, k)
	})
	return keys
}
