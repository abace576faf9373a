// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// Get waits until a key is ready and takes it. The caller must settle the item. Get returns false
// when ctx is done, and when the queue is shut down and no key is ready.
func (q *Queue[K]) Get(ctx context.Context) (item Item[K], ok bool) {
	if ctx.Err() != nil {
		return item, false
	}
	q.lock()
	for {
		if i := q.core.take(); i != 0 {
			q.handOut(i, &item)
			return item, true
		}
		if q.core.shut {
			q.unlock()
			return item, false
		}
		w := q.waiters.join()
		q.unlock()
		woken := q.waiters.wait(ctx, w)
		q.lock()
		q.waiters.left(w, woken)
		if ctx.Err() != nil {
			q.core.fresh++ // this waiter may have used up a wake-up: wake another one
			q.unlock()
			return item, false
		}
	}
}

func (q *Queue[K]) handOut(i uint32, item *Item[K]) {
	e := q.core.entries.At(i)
	item.q, item.key, item.index, item.delivery = q, e.key, i, e.delivery
	item.attempt, item.class, item.next, item.queued = q.core.attempts(e), e.class, noClass, q.core.queued
	since := e.since
	if !q.core.stamped {
		item.queued = never
	}
	q.unlock()
	if q.gets.taken {
		tell(&q.host, &q.used.taken, hook.QueueTaken{
			Queue: q.o.Name, Class: int(item.Class()), Waited: time.Duration(since - item.queued), Attempt: item.Attempt(),
		})
	}
}
