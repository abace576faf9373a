// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"fmt"
	"strings"

	"github.com/setpoint-dev/setpoint/hook"
)

// ShutDown ends the queue: adds are dropped and counted from now on, keys that wait, are parked or paused are dropped
// and counted now, and Get returns what is ready until there is nothing left, then false. It does not wait. It may be
// called any number of times, by any goroutine (W8).
func (q *Queue[K]) ShutDown() { q.shutDown(true) }

// shutDown also ends any ShutDownWithDrain that waits, if force is set.
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
		tell(&q.host, "Hooks.Closed", q.hooks.Load().Closed, hook.QueueClosed{Queue: q.o.Name, Of: q})
	}
}

// ShuttingDown reports whether the queue was shut down.
func (q *Queue[K]) ShuttingDown() bool {
	q.lock()
	defer q.unlock()
	return q.core.shut
}

// Drain shuts the queue down and waits until no key is ready or held, which takes workers that go on calling Get until
// it returns false. If ctx is done first, the error describes what was left and wraps ctx's cause.
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

// whenDrained returns a channel that is closed once the queue is drained.
func (q *Queue[K]) whenDrained() <-chan struct{} {
	q.lock()
	defer q.unlock()
	if q.watch == nil {
		q.watch = &watch{}
	}
	if q.watch.drained == nil {
		q.watch.drained = make(chan struct{})
	}
	return q.watch.drained
}

// Quiet waits for a moment at which nothing is under way (W12): no key is ready, held or parked, and
// none waits for MinInterval or for the end of a backoff of at most a second. So Quiet waits for a
// short failure, such as a conflict, but not for a lasting one. Keys that wait for anything else
// (After, AddOptions.After, a longer backoff) or are paused do not count. While all are paused (PauseAll),
// only held keys count.
//
// It returns how many deliveries there had been at that moment: two calls that return the same number
// have had none between them. If ctx ends before, the error counts the keys in the way and names a
// few. It is for tests and scripts: during the wait, each use of a queue on which nothing is ready,
// held or parked looks through the keys that have a due time.
func (q *Queue[K]) Quiet(ctx context.Context) (deliveries uint64, err error) {
	l := q.nextLull()
	select {
	case <-l.come:
		return l.deliveries, nil
	default:
	}
	select {
	case <-l.come:
		return l.deliveries, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("workqueue %q: %s: %w", q.o.Name, unquiet(q.underWay()), context.Cause(ctx))
	}
}

func (q *Queue[K]) nextLull() *lull {
	q.lock()
	defer q.unlock() // which ends it at once if it has come
	q.core.promote()
	if q.watch == nil {
		q.watch = &watch{}
	}
	if q.watch.lull == nil {
		q.watch.lull = &lull{come: make(chan struct{})}
	}
	return q.watch.lull
}

// unquiet describes what is under way.
func unquiet[K comparable](keys []busy[K]) string {
	var words []string
	for _, state := range []State{Ready, Held, Parked, Waiting} {
		var names []string
		n := 0
		for _, k := range keys {
			if k.state != state {
				continue
			}
			if n++; n > mostNamed {
				continue
			}
			name := fmt.Sprint(k.key)
			if k.why != "" {
				name += " (" + k.why + ")"
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
		return "it has been quiet for a moment only"
	}
	return strings.Join(words, "; ")
}

// mostNamed is how many keys of a state Quiet names.
const mostNamed = 5

// busy is a key that is under way, and why if it is parked.
type busy[K comparable] struct {
	key   K
	state State
	why   string
}

func (q *Queue[K]) underWay() (keys []busy[K]) {
	q.lock()
	defer q.unlock()
	q.core.all(func(_ uint32, e *entry[K]) {
		if e.state != Held && (q.core.pausedAll || e.state != Ready && e.state != Parked && !q.core.dueSoon(e)) {
			return
		}
		k := busy[K]{key: e.key, state: e.state}
		if x := q.core.extra(e); x != nil && e.state == Parked {
			k.why = x.why
		}
		keys = append(keys, k)
	})
	return keys
}
