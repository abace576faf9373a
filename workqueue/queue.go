// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"cmp"
	"hash/maphash"
	"reflect"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// Queue hands keys to workers. All methods may be called from any goroutine at any time. Only Get,
// Drain and Quiet block. AddAll and ShutDown hold the queue's lock while
// they process all their keys; other methods process a few.
type Queue[K comparable] struct {
	host[K]
	seed   maphash.Seed
	unsure bool // may be unequal to itself, or impossible to hash
	lanes

	mu      sync.Mutex // guards what follows
	core    core[K]
	waiters waiters
	watch   watch         // of the calls of Drain and Quiet that wait
	forced  chan struct{} // closed to end ShutDownWithDrain; nil if none waits
	misused int
}

// New returns a queue, or the error of Options.Validate.
func New[K comparable](o Options[K]) (*Queue[K], error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	q := &Queue[K]{seed: maphash.MakeSeed(), unsure: unsure(reflect.TypeFor[K]())}
	q.waiters.timer, q.waiters.armed = time.NewTimer(time.Hour), never
	q.waiters.timer.Stop()
	q.core.start = time.Now()
	q.setUp(o)
	q.send(&hook.QueueOpened{Queue: o.Name, Of: q, Stats: q.stats})
	return q, nil
}

func (q *Queue[K]) setUp(o Options[K]) {
	c := &q.core
	q.gets = gets{
		added: hook.Gets[*hook.QueueAdded](o.Hook), delayed: hook.Gets[*hook.QueueDelayed](o.Hook),
		taken: hook.Gets[*hook.QueueTaken](o.Hook), settled: hook.Gets[*hook.QueueSettled](o.Hook),
	}
	c.observed = q.gets != gets{} || hook.Gets[*hook.QueueOpened](o.Hook) || hook.Gets[*hook.QueueDropped](o.Hook)
	if o.Backoff == nil {
		o.Backoff = Exponential{}
	}
	o.MaxWait, o.Reasons = cmp.Or(o.MaxWait, o.MinInterval), cmp.Or(o.Reasons, defaultReasons)
	var split uint8
	o.Classes, split = orderOf(o.Classes)
	q.o, q.lanes = o, newLanes(o.Classes, split)
	c.plain = split == 0 && o.Tenant == nil
	c.fair = fair{classes: lanesOf(o.Classes, split), byName: map[string]uint32{}, sweepAt: minIdle}
	if c.plain {
		c.fair.tenant("", 1)
	}
	c.split, c.normal, c.urgent = split, q.laneOf(Normal), q.laneOf(Interactive)
	c.minInterval, c.maxWait = int64(o.MinInterval), int64(o.MaxWait)
	c.notes = notes{known: map[cause]*cause{}, start: c.start, most: uint32(max(o.Reasons, 0)), off: o.Reasons < 0}
	c.stamped = c.observed || !c.notes.off
	c.asks = o.Own != nil
	if c.asks {
		c.adds = map[uint32][]Reason{}
	}
}

// identify returns false, and counts a drop, if the key is not equal to itself.
func (q *Queue[K]) identify(w *who[K]) bool {
	if q.unsure && !sound(w.key) {
		q.lock()
		q.core.drop(dropUnequal)
		q.unlock()
		return false
	}
	w.hash, w.weight = uint32(maphash.Comparable(q.seed, w.key)), 1
	return true
}

// lockEntry locks. Workers mostly ask for the key that was taken last, which needs no hash.
func (q *Queue[K]) lockEntry(key K) uint32 {
	q.lock()
	if q.unsure && !sound(key) {
		q.core.drop(dropUnequal)
		return 0
	}
	if i := q.core.last; q.core.entries.Has(i) {
		if e := q.core.entries.At(i); e.is(flagUsed) && e.key == key {
			return i
		}
	}
	return q.core.find(key, uint32(maphash.Comparable(q.seed, key)))
}

// prepare calls the host's functions: never under the lock.
func (q *Queue[K]) prepare(w *who[K]) bool {
	if !q.identify(w) {
		return false
	}
	w.tenant, w.weight = q.tenant(w.key)
	return true
}

func (q *Queue[K]) lock() {
	q.mu.Lock()
	q.core.at = 0
}

// unlock wakes one waiter for each key that became ready, sets the timer, unlocks, and calls the
// hooks.
func (q *Queue[K]) unlock() {
	if q.waiters.n == 0 && q.watch == (watch{}) && !q.core.news.any {
		q.core.fresh = 0
		q.mu.Unlock()
		return
	}
	wakes := q.waiters.pop(q.core.wakes(q.waiters.n))
	q.waiters.arm(&q.core.clock, q.core.due.next())
	q.core.fresh = 0
	come := q.comeLocked()
	var n news
	if q.core.news.any {
		n, q.core.news = q.core.news, news{}
	}
	q.mu.Unlock()

	wake(wakes)
	come.tell()
	if n.any {
		q.report(&n)
	}
}

// comeLocked returns the waits, other than for keys, that are over.
func (q *Queue[K]) comeLocked() (come watch) {
	w := &q.watch
	if w.drained != nil && q.core.drained() {
		come.drained, w.drained = w.drained, nil
	}
	if w.lull != nil && q.core.quiet() {
		come.lull, w.lull = w.lull, nil
		come.lull.deliveries = q.core.deliveries
	}
	return come
}

// misusedLocked also unlocks.
func (q *Queue[K]) misusedLocked(what string) {
	q.misused++
	q.unlock()
	q.send(&hook.QueueMisused{Queue: q.o.Name, What: what})
}

// Len is the number of keys in each state. A key that is paused and held counts as held.
type Len struct {
	Ready, Waiting, Held, Parked, Paused int
	// AllPaused reports that Pause is in effect.
	AllPaused bool
}

// Len returns the number of keys in each state. It is cheap.
func (q *Queue[K]) Len() Len {
	q.lock()
	defer q.unlock()
	return q.core.len()
}

func (c *core[K]) len() Len {
	c.promote()
	n := &c.counts
	return Len{Ready: n[Ready], Waiting: n[Waiting], Held: n[Held], Parked: n[Parked], Paused: n[Paused], AllPaused: c.pausedAll}
}

// ReadySince returns since when some key has been ready, not always the same one. It is zero if
// none is. It is cheap.
func (q *Queue[K]) ReadySince() time.Time {
	q.lock()
	defer q.unlock()
	if q.core.len().Ready == 0 {
		return time.Time{}
	}
	return q.core.time(q.core.readySince)
}

// ReadyByClass returns the number of ready keys of each class. It is cheap.
func (q *Queue[K]) ReadyByClass() map[Class]int {
	q.lock()
	defer q.unlock()
	q.core.promote()
	ready := map[Class]int{}
	for class, n := range q.readyByClassLocked() {
		ready[Class(class)] = n //nolint:gosec // it was a Class
	}
	return ready
}

func (q *Queue[K]) readyByClassLocked() map[int]int {
	ready := make(map[int]int, len(q.core.fair.classes))
	for _, c := range q.core.fair.classes {
		ready[int(c.class)] += c.ready
	}
	if q.core.plain {
		ready[int(q.o.Classes[0].Class)] = q.core.counts[Ready]
	}
	return ready
}

func (q *Queue[K]) stats() hook.QueueStats {
	q.lock()
	defer q.unlock()
	now := q.core.now()
	l := q.core.len()
	s := hook.QueueStats{
		Ready: l.Ready, Waiting: l.Waiting, Held: l.Held, Parked: l.Parked, Paused: l.Paused,
		ReadyByClass: q.readyByClassLocked(),
		Unfinished:   time.Duration(int64(l.Held)*now - q.core.heldSince),
	}
	if q.o.Tenant != nil {
		s.ReadyByTenant = q.core.fair.readyByTenant()
	}
	if i := q.core.held.head; i != 0 {
		s.Longest = time.Duration(now - q.core.entries.At(i).since)
	}
	return s
}
