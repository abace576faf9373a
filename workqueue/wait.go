// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"time"
)

// waiter is a goroutine that waits in Get. Each removal by pop sends it one token.
type waiter struct {
	token      chan struct{} // has room for one
	prev, next *waiter
	listed     bool
}

// waiters are the goroutines in Get, the latest first: its stack is most likely still cached.
type waiters struct {
	head  *waiter
	n     int
	spare *waiter     // linked by next
	timer *time.Timer // wakes one waiter at the next due time
	armed int64       // what timer is set to, or never
}

func (l *waiters) join() *waiter {
	w := l.spare
	if w == nil {
		w = &waiter{token: make(chan struct{}, 1)}
	} else {
		l.spare = w.next
	}
	w.prev, w.next, w.listed = nil, l.head, true
	if l.head != nil {
		l.head.prev = w
	}
	l.head = w
	l.n++
	return w
}

func (l *waiters) remove(w *waiter) {
	if w.prev == nil {
		l.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.listed = nil, nil, false
	l.n--
}

func (l *waiters) pop(n int) *waiter {
	var out *waiter
	for n = min(n, l.n); n > 0; n-- {
		w := l.head
		l.remove(w)
		w.next = out
		out = w
	}
	return out
}

// wake runs without the lock. A waiter with its token may be reused.
func wake(w *waiter) {
	for w != nil {
		next := w.next
		w.next = nil
		w.token <- struct{}{}
		w = next
	}
}

// wait returns true for the token, and false at the end of ctx or the next due time.
func (l *waiters) wait(ctx context.Context, w *waiter) (woken bool) {
	select {
	case <-w.token:
		return true
	case <-ctx.Done():
	case <-l.timer.C:
	}
	return false
}

func (l *waiters) left(w *waiter, woken bool) {
	l.armed = never // the timer may have fired: set it again
	switch {
	case w.listed:
		l.remove(w)
	case !woken:
		return // its token is still to come: do not reuse it
	}
	w.next = l.spare
	l.spare = w
}

func (l *waiters) arm(c *clock, next int64) {
	if l.n == 0 || next == l.armed {
		return
	}
	l.armed = next
	l.timer.Stop()
	if next != never {
		l.timer.Reset(time.Duration(next - c.now()))
	}
}

type watch struct {
	drained chan struct{} // nil if no call waits
	lull    *lull
}

type lull struct {
	come       chan struct{} // closed after deliveries is set
	deliveries uint64
}

// tell is called without the lock.
func (w watch) tell() {
	if w.drained != nil {
		close(w.drained)
	}
	if w.lull != nil {
		close(w.lull.come)
	}
}
