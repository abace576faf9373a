// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"iter"
	"time"

	"github.com/setpoint-dev/setpoint/workqueue"
)

// KeySummary describes one key.
type KeySummary struct {
	Key string // its text
	// State is the text of its workqueue.State: idle, waiting, ready, held, parked or paused.
	State string
	// Since is when the key entered its state, or zero if that is unknown. Due is when the next
	// Reconcile is due; zero: not known, or never.
	Since, Due time.Time
	Attempts   int // the number of failures in a row
	// Took is how long its last Reconcile took, or the one in progress so far. It is zero if the
	// History does not remember one.
	Took time.Duration
	// Failure is the failure of its last Reconcile, or nil.
	Failure *Failure
}

// Keys returns the keys that are queued, in progress or failing, in no particular order. It copies
// neither the queue nor the reasons, and does not lock the queue during the loop's body. A million
// failing keys take about two seconds. A key that changes meanwhile is shown at some moment during
// the loop.
func (c *Controller[K]) Keys() iter.Seq[KeySummary] {
	return func(yield func(KeySummary) bool) {
		queue, pool := c.current.Load(), c.pool.state()
		runs := map[K]*running[K]{}
		for _, r := range pool.running() {
			runs[r.item.Key()] = r
		}
		for key := range queue.Keys() {
			if now, ok := queue.Lookup(key); ok && !yield(c.summaryOf(&now, runs[key], pool.leading)) {
				return
			}
		}
		if !pool.leading {
			return
		}
		for _, f := range c.records.failed() {
			if _, queued := queue.Lookup(f.key); queued {
				continue
			}
			if !yield(KeySummary{Key: fmt.Sprint(f.key), State: workqueue.Idle.String(), Attempts: 1, Took: c.past.took(f.key), Failure: f.failure}) {
				return
			}
		}
	}
}

// summaryOf describes a key of the queue. by is the Reconcile in progress, or nil. A standby
// shows no failures, as Failing.
func (c *Controller[K]) summaryOf(now *workqueue.KeyState[K], by *running[K], leading bool) KeySummary {
	s := KeySummary{Key: fmt.Sprint(now.Key), State: now.State.String(), Since: now.Since, Due: now.Due, Attempts: now.Attempts}
	past := c.records.look(now.Key).past
	if by != nil { // it took the record
		s.Since, s.Took, past = c.began.Add(by.since), c.now()-by.since, by.past
	} else {
		s.Took = c.past.took(now.Key)
	}
	if leading && past != nil && past.failure != nil {
		s.Failure, s.Attempts = past.failure, max(s.Attempts, 1)
	}
	return s
}
