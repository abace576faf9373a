// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// soon is the longest backoff that Quiet waits for: with the default one, that of the eighth failure in a row.
const soon = int64(time.Second)

// watch is what somebody waits for.
type watch struct {
	drained chan struct{} // closed when the queue is drained; nil while nobody waits for that
	lull    *lull         // nil while nobody waits for one
}

// lull is a moment at which nothing is under way.
type lull struct {
	come       chan struct{} // closed then, when deliveries is set
	deliveries uint64
}

// Quiet waits for a moment at which nothing is under way (W12): no key is ready, held or parked, none waits for MinInterval,
// and none waits for the end of a backoff that was at most a second when it began, so that what fails for a short while, such
// as a conflict, is waited for, and what goes on failing is not. Keys that wait for anything else (After, How.After, a longer
// backoff) or are paused do not count, nor, while all are paused (PauseAll), does anything but what is held.
//
// It returns how many deliveries there had been at that moment: two calls that return the same number have had none between
// them. If ctx ends before, the error counts the keys in the way and names a few. It is for tests and scripts: while somebody
// waits, each use of a queue on which nothing is ready, held or parked looks through the keys that have a due time.
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
		return 0, fmt.Errorf("workqueue %q: %s: %w", q.o.Name, q.unquiet(), context.Cause(ctx))
	}
}

func (q *Queue[K]) nextLull() *lull {
	q.mu.Lock()
	defer q.unlock() // which ends it at once if it has come
	q.core.promote(q.nowIfDueLocked())
	if q.watch == nil {
		q.watch = &watch{}
	}
	if q.watch.lull == nil {
		q.watch.lull = &lull{come: make(chan struct{})}
	}
	return q.watch.lull
}

// lookLocked returns what has come of what somebody waits for.
func (q *Queue[K]) lookLocked() (come watch) {
	w := q.watch
	if w.drained != nil && q.drainedLocked() {
		come.drained, w.drained = w.drained, nil
	}
	if w.lull != nil && q.core.quiet() {
		come.lull, w.lull = w.lull, nil
		come.lull.deliveries = q.core.deliveries
	}
	if *w == (watch{}) {
		q.watch = nil
	}
	return come
}

// tell wakes those who waited. It is called without the lock.
func (w watch) tell() {
	if w.drained != nil {
		close(w.drained)
	}
	if w.lull != nil {
		close(w.lull.come)
	}
}

// quiet says whether nothing is under way.
func (c *core[K]) quiet() bool {
	if c.counts[Held] > 0 {
		return false
	}
	if c.pausedAll {
		return true
	}
	if c.counts[Ready] > 0 || c.counts[Parked] > 0 {
		return false
	}
	if c.counts[Waiting] == 0 {
		return true
	}
	for _, n := range c.due.nodes {
		if c.dueSoon(c.entries.at(c.extras.at(n.index).entry)) {
			return false
		}
	}
	return true
}

// dueSoon says whether a key that waits is one that Quiet waits for.
func (c *core[K]) dueSoon(e *entry[K]) bool {
	x := c.extra(e)
	if e.state != Waiting || x == nil {
		return false
	}
	return x.calm != never || e.is(flagBackoff) && x.own != never && x.own-e.since <= soon
}

// unquiet says in words what is under way.
func (q *Queue[K]) unquiet() string {
	keys := q.underWay()
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
	q.mu.Lock()
	defer q.unlock()
	for i := uint32(1); i < q.core.entries.used; i++ {
		e := q.core.entries.at(i)
		if !e.is(flagUsed) || e.state != Held && (q.core.pausedAll || e.state != Ready && e.state != Parked && !q.core.dueSoon(e)) {
			continue
		}
		k := busy[K]{key: e.key, state: e.state}
		if x := q.core.extra(e); x != nil && e.state == Parked {
			k.why = x.why
		}
		keys = append(keys, k)
	}
	return keys
}
