// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// Queue hands keys to workers. All methods except Configure may be called from any goroutine at any
// time. Only Get, Drain and Quiet block. AddAll, Snapshot and ShutDown hold the queue's lock while
// they process all their keys; other methods process a few.
type Queue[K comparable] struct {
	host[K]
	seed   maphash.Seed
	unsure bool // may be unequal to itself, or impossible to hash
	lanes
	used atomic.Bool // written under the lock

	mu      sync.Mutex // guards what follows
	core    core[K]
	waiters waiters
	watch   *watch        // nil while no call of Drain or Quiet waits
	forced  chan struct{} // closed to end ShutDownWithDrain; nil if none waits
	misused int

	observers []*hook.Queue // which hooks combines, or will
}

// New returns a queue, or the error of Options.Validate.
func New[K comparable](o Options[K]) (*Queue[K], error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	q := &Queue[K]{seed: maphash.MakeSeed(), unsure: unsure[K]()}
	q.waiters.timer, q.waiters.armed = time.NewTimer(time.Hour), never
	q.waiters.timer.Stop()
	q.core.start = time.Now()
	q.hooks.Store(&hook.Queue{})
	q.setUp(o)
	q.Observe(o.Hooks)
	return q, nil
}

// Configure replaces the options of a queue, except Name and Hooks. It fails and changes nothing if
// the options are invalid (see Options.Validate), or after the first add, Pause or RequeueNow. Call
// it before you share the queue.
func (q *Queue[K]) Configure(o Options[K]) error {
	o.Name, o.Hooks = q.o.Name, q.o.Hooks
	if err := o.Validate(); err != nil {
		return err
	}
	q.lock()
	defer q.unlock()
	if q.used.Load() {
		return fmt.Errorf("workqueue %q: Configure: the queue had keys before; set the options before the first add", q.o.Name)
	}
	q.setUp(o)
	return nil
}

// use makes Configure fail from now on. Every method that creates entries calls it first.
func (q *Queue[K]) use() {
	if !q.used.Load() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.used.Store(true)
	}
}

// Observe adds hooks to Options.Hooks, once, at any time. It calls h.Opened, then h.Added for keys
// that are ready already, and h.Closed if the queue is shut down. Times that were not recorded
// count from the call.
func (q *Queue[K]) Observe(h *hook.Queue) {
	if h == nil {
		return
	}
	q.lock()
	if slices.Contains(q.observers, h) {
		q.unlock()
		return
	}
	q.observers = append(q.observers, h)
	q.core.observe()
	q.unlock()
	q.tellOpened(h) // before all other events, so that none of them can be the last
	q.lock()
	all := *hook.Hooks{Queue: q.hooks.Load()}.With(hook.Hooks{Queue: h}).Queue
	q.hooks.Store(&all)
	ready := make([]int, len(q.o.Classes))
	q.core.all(func(_ uint32, e *entry[K]) {
		if e.state == Ready {
			ready[e.class>>q.core.split]++
		}
	})
	shut := q.core.shut
	q.unlock()
	for i, keys := range ready {
		q.reportAdded(h, i, keys)
	}
	if shut {
		tell(&q.host, "Hooks.Closed", h.Closed, hook.QueueClosed{Queue: q.o.Name, Of: q})
	}
}

func (q *Queue[K]) tellOpened(h *hook.Queue) {
	if h.Opened == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			q.panicked(hook.Hooks{Queue: q.hooks.Load()}.With(hook.Hooks{Queue: h}).Queue, "Hooks.Opened", v)
		}
	}()
	h.Opened(hook.QueueOpened{Queue: q.o.Name, Of: q, Stats: q.stats})
}

func (q *Queue[K]) setUp(o Options[K]) {
	if o.Backoff == nil {
		o.Backoff = Exponential{}
	}
	o.MaxWait, o.Reasons = cmp.Or(o.MaxWait, o.MinInterval), cmp.Or(o.Reasons, defaultReasons)
	var split uint8
	o.Classes, split = orderOf(o.Classes)
	q.o, q.lanes = o, newLanes(o.Classes, split)
	c := &q.core
	c.plain = split == 0 && o.Tenant == nil
	c.fair = newFair(lanesOf(o.Classes, split))
	if c.plain {
		c.fair.tenant("", 1)
	}
	c.split, c.normal, c.urgent = split, q.laneOf(Normal), q.laneOf(Interactive)
	c.minInterval, c.maxWait = int64(o.MinInterval), int64(o.MaxWait)
	c.notes = notes{known: map[cause]*cause{}, start: c.start, most: uint32(max(o.Reasons, 0)), off: o.Reasons < 0}
	c.stamped = c.observed || !c.notes.off
	c.asks, c.adds = o.Own != nil, nil
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
	if i := q.core.last; q.core.entries.has(i) {
		if e := q.core.entries.at(i); e.is(flagUsed) && e.key == key {
			return i
		}
	}
	return q.core.find(key, uint32(maphash.Comparable(q.seed, key)))
}

// prepare calls the host's functions: never under the lock.
func (q *Queue[K]) prepare(w *who[K]) bool {
	q.use()
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
	if q.waiters.n == 0 && q.watch == nil && !q.core.news.any {
		q.core.fresh = 0
		q.mu.Unlock()
		return
	}
	wakes := q.waiters.pop(q.core.wakes(q.waiters.n))
	q.waiters.arm(&q.core.clock, q.core.due.next())
	q.core.fresh = 0
	var come watch
	if q.watch != nil {
		come = q.comeLocked()
	}
	var n news
	var hooks *hook.Queue // read under the lock: Observe counts the ready keys for later ones
	if q.core.news.any {
		n, q.core.news = q.core.news, news{}
		hooks = q.hooks.Load()
	}
	q.mu.Unlock()

	wake(wakes)
	come.tell()
	if n.any {
		q.report(hooks, &n)
	}
}

// comeLocked returns the waits, other than for keys, that are over.
func (q *Queue[K]) comeLocked() (come watch) {
	w := q.watch
	if w.drained != nil && q.core.drained() {
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

// misusedLocked also unlocks.
func (q *Queue[K]) misusedLocked(what string) {
	q.misused++
	q.unlock()
	tell(&q.host, "Hooks.Misused", q.hooks.Load().Misused, hook.QueueMisused{Queue: q.o.Name, What: what})
}

// Len is the number of keys in each state. A key that is paused and held counts as held.
type Len struct {
	Ready, Waiting, Held, Parked, Paused int
	// AllPaused reports that PauseAll is in effect.
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

func (q *Queue[K]) stats() hook.QueueStats {
	q.lock()
	defer q.unlock()
	now := q.core.now()
	l := q.core.len()
	s := hook.QueueStats{
		Ready: l.Ready, Waiting: l.Waiting, Held: l.Held, Parked: l.Parked, Paused: l.Paused,
		ReadyByClass: make(map[int]int, len(q.core.fair.classes)),
		Unfinished:   time.Duration(int64(l.Held)*now - q.core.heldSince),
	}
	for _, c := range q.core.fair.classes {
		s.ReadyByClass[int(c.class)] += c.ready
	}
	if q.o.Tenant != nil {
		s.ReadyByTenant = q.core.fair.readyByTenant()
	}
	if q.core.plain {
		s.ReadyByClass[int(q.o.Classes[0].Class)] = l.Ready
	}
	if i := q.core.held.head; i != 0 {
		s.Longest = time.Duration(now - q.core.entries.at(i).since)
	}
	return s
}
