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

// newsLocked takes the core's news. Without hooks nobody is interested in keys that became ready.
func (q *Queue[K]) newsLocked() (n news, any bool) {
	if q.core.dropped != [numDrops]int{} {
		n.dropped, any = q.core.dropped, true
		q.core.dropped = [numDrops]int{}
		for d := range n.dropped {
			q.stats.dropped[d] += n.dropped[d]
		}
	}
	if q.o.Hooks == nil {
		return n, false
	}
	if q.core.readied != [maxClasses]int{} {
		n.readied, any = q.core.readied, true
		q.core.readied = [maxClasses]int{}
	}
	return n, any
}

// tell reports the news to the hooks.
func (q *Queue[K]) tell(n news) {
	if q.o.Hooks.Added != nil {
		for i, keys := range n.readied {
			if keys > 0 {
				ev := hook.QueueAdded{Queue: q.o.Name, Class: int(q.o.Classes[i].Class), Keys: keys}
				q.report("Added", func(h *hook.Queue) { h.Added(ev) })
			}
		}
	}
	if q.o.Hooks.Dropped != nil {
		for d, keys := range n.dropped {
			if keys > 0 {
				ev := hook.QueueDropped{Queue: q.o.Name, Why: dropNames[d], Keys: keys}
				q.report("Dropped", func(h *hook.Queue) { h.Dropped(ev) })
			}
		}
	}
}

// report calls a hook, and recovers its panic.
func (q *Queue[K]) report(name string, call func(*hook.Queue)) {
	defer q.recovered("Hooks." + name)
	call(q.o.Hooks)
}

// recovered is deferred around each call of the host's code.
func (q *Queue[K]) recovered(name string) {
	v := recover()
	if v == nil {
		return
	}
	q.stats.panics.Add(1)
	if q.o.Hooks != nil && q.o.Hooks.Panicked != nil {
		defer func() { _ = recover() }() // the hook that reports panics has panicked: the count must do
		q.o.Hooks.Panicked(hook.QueuePanicked{Queue: q.o.Name, Func: name, Value: v, Stack: debug.Stack()})
	}
}

func (q *Queue[K]) opened() {
	if q.o.Hooks != nil && q.o.Hooks.Opened != nil {
		q.report("Opened", func(h *hook.Queue) { h.Opened(hook.QueueOpened{Queue: q.o.Name, Stats: q.queueStats}) })
	}
}

func (q *Queue[K]) delayed(how How) {
	if q.o.Hooks != nil && q.o.Hooks.Delayed != nil {
		ev := hook.QueueDelayed{Queue: q.o.Name, Class: int(q.o.Classes[q.classOf(how.Class)].Class), Delay: how.After}
		q.report("Delayed", func(h *hook.Queue) { h.Delayed(ev) })
	}
}

// misusedLocked counts a call that broke the contract, unlocks, and reports it.
func (q *Queue[K]) misusedLocked(what string) {
	q.stats.misused++
	q.unlock()
	if q.o.Hooks != nil && q.o.Hooks.Misused != nil {
		q.report("Misused", func(h *hook.Queue) { h.Misused(hook.QueueMisused{Queue: q.o.Name, What: what}) })
	}
}

func (q *Queue[K]) rejectUnsound() {
	q.mu.Lock()
	q.core.dropped[dropUnequal]++
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

func (q *Queue[K]) addedWhileHeld(key K, delivery uint64, how How) {
	defer q.recovered("AddedWhileHeld")
	q.o.AddedWhileHeld(key, delivery, how)
}

func (q *Queue[K]) skipInBackoff(key K, delivery uint64, how How) bool {
	defer q.recovered("SkipInBackoff")
	return q.o.SkipInBackoff(key, delivery, how)
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
	return key == key //nolint:staticcheck // not so for what holds a NaN
}
