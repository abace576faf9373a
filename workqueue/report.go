// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"reflect"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

var dropNames = [numDrops]string{
	dropWaiting: "waiting at shutdown",
	dropParked:  "parked at shutdown",
	dropPaused:  "paused at shutdown",
	dropDelayed: "delayed after shutdown",
	dropLate:    "added after shutdown",
	dropUnequal: "not equal to itself",
}

// tally counts what should not happen. The queue's lock guards it, but for panics.
type tally struct {
	dropped [numDrops]int
	misused int
	panics  atomic.Int64
}

func (t *tally) byName() map[string]int {
	m := map[string]int{}
	for d, n := range t.dropped {
		if n > 0 {
			m[dropNames[d]] = n
		}
	}
	return m
}

// news is what there is to report after a use of the core.
type news struct {
	readied [maxClasses]int
	dropped [numDrops]int
}

// newsLocked takes the core's news.
func (q *Queue[K]) newsLocked() news {
	n := news{q.core.readied, q.core.dropped}
	q.core.news, q.core.readied, q.core.dropped = false, [maxClasses]int{}, [numDrops]int{}
	for d, keys := range n.dropped {
		q.stats.dropped[d] += keys
	}
	return n
}

// tell reports the news to the hooks.
func (q *Queue[K]) tell(n *news) {
	if q.hooks.Added != nil {
		for i, keys := range n.readied[:len(q.o.Classes)] {
			if keys > 0 {
				q.tellAdded(hook.QueueAdded{Queue: q.o.Name, Class: int(q.o.Classes[i].Class), Keys: keys})
			}
		}
	}
	if q.hooks.Dropped != nil {
		for d, keys := range n.dropped {
			if keys > 0 {
				q.tellDropped(hook.QueueDropped{Queue: q.o.Name, Why: dropNames[d], Keys: keys})
			}
		}
	}
}

func (q *Queue[K]) tellAdded(e hook.QueueAdded) {
	defer q.recovered("Hooks.Added")
	q.hooks.Added(e)
}

func (q *Queue[K]) tellDropped(e hook.QueueDropped) {
	defer q.recovered("Hooks.Dropped")
	q.hooks.Dropped(e)
}

func (q *Queue[K]) tellTaken(e hook.QueueTaken) {
	defer q.recovered("Hooks.Taken")
	q.hooks.Taken(e)
}

func (q *Queue[K]) tellSettled(e hook.QueueSettled) {
	defer q.recovered("Hooks.Settled")
	q.hooks.Settled(e)
}

func (q *Queue[K]) tellDelayed(how *How) {
	if q.hooks.Delayed == nil {
		return
	}
	defer q.recovered("Hooks.Delayed")
	q.hooks.Delayed(hook.QueueDelayed{Queue: q.o.Name, Class: int(q.classIn(q.laneOf(how.Class))), Delay: how.After})
}

func (q *Queue[K]) tellOpened() {
	if q.hooks.Opened == nil {
		return
	}
	defer q.recovered("Hooks.Opened")
	q.hooks.Opened(hook.QueueOpened{Queue: q.o.Name, Of: q, Stats: q.queueStats})
}

func (q *Queue[K]) tellClosed() {
	if q.hooks.Closed == nil {
		return
	}
	defer q.recovered("Hooks.Closed")
	q.hooks.Closed(hook.QueueClosed{Queue: q.o.Name, Of: q})
}

// misusedLocked counts a call that broke the contract, unlocks, and reports it.
func (q *Queue[K]) misusedLocked(what string) {
	q.stats.misused++
	q.unlock()
	if q.hooks.Misused == nil {
		return
	}
	defer q.recovered("Hooks.Misused")
	q.hooks.Misused(hook.QueueMisused{Queue: q.o.Name, What: what})
}

// recovered is deferred around each call of the host's code.
func (q *Queue[K]) recovered(name string) {
	v := recover()
	if v == nil {
		return
	}
	q.stats.panics.Add(1)
	if q.hooks.Panicked != nil {
		defer func() { _ = recover() }() // the hook that reports panics has panicked: the count must do
		q.hooks.Panicked(hook.QueuePanicked{Queue: q.o.Name, Func: name, Value: v, Stack: debug.Stack()})
	}
}

func (q *Queue[K]) rejectUnsound() {
	q.mu.Lock()
	q.core.drop(dropUnequal)
	q.unlock()
}

func (q *Queue[K]) tenantOf(key K) (name string, weight float64) {
	defer q.recovered("Tenant")
	weight = 1
	name = q.o.Tenant(key)
	if q.o.TenantWeight != nil {
		if w := q.o.TenantWeight(name); validWeight(w) {
			weight = w
		}
	}
	return name, weight
}

func (q *Queue[K]) isOwn(key K, delivery uint64, r Reason) bool {
	defer q.recovered("Own")
	return q.o.Own(key, delivery, r)
}

// backoff returns the delay after the n-th failure in a row.
func (q *Queue[K]) backoff(n int) (d time.Duration) {
	d = q.delayOf(n)
	if q.o.Limiter != nil {
		now := time.Now()
		if r := q.o.Limiter.ReserveN(now, 1); r.OK() {
			d = max(d, r.DelayFrom(now))
		}
	}
	return max(d, 0)
}

func (q *Queue[K]) delayOf(n int) time.Duration {
	defer q.recovered("Backoff")
	return q.o.Backoff.Delay(n)
}

// unsure tells whether a K may be unequal to itself, or impossible to compare.
func unsure[K comparable]() bool { return unsureType(reflect.TypeFor[K]()) }

func unsureType(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128, reflect.Interface:
		return true
	case reflect.Array:
		return unsureType(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if unsureType(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}

// sound tells whether key is equal to itself and can be compared.
func sound[K comparable](key K) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return key == key // not so for what holds a NaN
}
