// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"time"
)

// waiter is one goroutine that waits in Get. Whoever takes it out of the list to wake it sends it one token.
type waiter struct {
	token      chan struct{} // has room for one
	prev, next *waiter
	listed     bool
}

// waiters are those that wait, the latest first: it is the one whose stack is still in the processor's cache.
type waiters struct {
	head  *waiter
	n     int
	spare *waiter // linked by next
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

// pop takes n waiters out and returns them, linked by next.
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

// wake sends each its token. It is called without the lock, and a waiter may be in use again once it has its token.
func wake(w *waiter) {
	for w != nil {
		next := w.next
		w.next = nil
		w.token <- struct{}{}
		w = next
	}
}

// wait waits for the token, the end of ctx, or the time when the next key is due. It tells whether it has the token.
func (q *Queue[K]) wait(ctx context.Context, w *waiter) (woken bool) {
	select {
	case <-w.token:
		return true
	case <-ctx.Done():
	case <-q.timer.C:
	}
	return false
}

// leftLocked takes w out of the list.
func (q *Queue[K]) leftLocked(w *waiter, woken bool) {
	q.armed = never // the timer may have fired: set it anew
	switch {
	case w.listed:
		q.waiters.remove(w)
	case !woken:
		return // its token is still to come: leave it to the garbage collector
	}
	w.next = q.waiters.spare
	q.waiters.spare = w
}

// unlock ends every use of the core: it wakes as many waiters as keys have become ready, sets the timer if anybody
// waits, unlocks, and reports what has happened.
func (q *Queue[K]) unlock() {
	if q.waiters.n == 0 && q.watch == nil && !q.core.news {
		q.core.fresh = 0
		q.mu.Unlock()
		return
	}
	var wakes *waiter
	if q.waiters.n > 0 {
		wakes = q.waiters.pop(q.wakesLocked())
		if next := q.core.due.next(); q.waiters.n > 0 && next != q.armed {
			q.armed = next
			q.timer.Stop()
			if next != never {
				q.timer.Reset(time.Duration(next - q.now()))
			}
		}
	}
	q.core.fresh = 0
	var come watch
	if q.watch != nil {
		come = q.lookLocked()
	}
	had := q.core.news
	var n news
	if had {
		n = q.newsLocked()
	}
	q.mu.Unlock()

	wake(wakes)
	come.tell()
	if had {
		q.tell(&n)
	}
}

// wakesLocked is how many waiters have something to do.
func (q *Queue[K]) wakesLocked() int {
	switch {
	case q.core.shut:
		return q.waiters.n
	case q.core.pausedAll:
		return 0
	}
	return min(q.core.fresh, q.core.counts[Ready])
}
