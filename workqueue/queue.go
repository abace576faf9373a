// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// Queue hands keys to workers. All its methods may be called by any goroutine at any time; none but Get and Drain
// ever waits for anything but the queue's lock, which nobody holds for longer than it takes to move a few keys
// (AddAll and Snapshot: all of theirs).
type Queue[K comparable] struct {
	o      Options[K]
	start  time.Time // what the core's times count from
	seed   maphash.Seed
	unsure bool // a K may be unequal to itself, or impossible to hash
	class  [256]uint8
	hooks  hook.Queue // all nil if there are none

	mu      sync.Mutex // guards what follows
	core    core[K]
	waiters waiters
	timer   *time.Timer   // wakes one waiter when the next key is due
	armed   int64         // what timer is set to, or never
	watch   *watch        // nil while nobody waits for anything but a key
	forced  chan struct{} // closed to end ShutDownWithDrain; nil while nobody waits in it
	stats   tally
}

// New returns a queue, or the error of Options.Validate. It starts nothing, and the queue never does.
func New[K comparable](o Options[K]) (*Queue[K], error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Backoff == nil {
		o.Backoff = Exponential{}
	}
	if o.MaxWait == 0 {
		o.MaxWait = o.MinInterval
	}
	if o.Reasons == 0 {
		o.Reasons = defaultReasons
	}
	o.Classes = slices.SortedFunc(slices.Values(o.Classes), func(a, b Share) int { return int(a.Class) - int(b.Class) })
	split := uint8(1)
	if len(o.Classes) == 0 {
		o.Classes, split = []Share{{Normal, 1}}, 0
	}
	q := &Queue[K]{o: o, start: time.Now(), seed: maphash.MakeSeed(), unsure: unsure[K](), armed: never}
	q.timer = time.NewTimer(time.Hour)
	q.timer.Stop()

	q.core = newCore[K](lanesOf(o.Classes, split), split == 0 && o.Tenant == nil)
	q.core.split = split
	for i, s := range o.Classes {
		for c := range q.class {
			if int8(c) >= int8(s.Class) {
				q.class[c] = addedLane(i, split)
			}
		}
	}
	q.core.normal, q.core.urgent = q.laneOf(Normal), q.laneOf(Interactive)
	q.core.minInterval, q.core.maxWait = int64(o.MinInterval), int64(o.MaxWait)
	q.core.notes = newNotes(o.Reasons, q.start)
	if o.Hooks != nil {
		q.hooks, q.core.observed = *o.Hooks, true
	}
	q.core.stamped = q.core.observed || !q.core.notes.off
	if o.Own != nil {
		q.core.asks, q.core.adds = true, map[uint32][]Reason{}
	}
	q.tellOpened()
	return q, nil
}

// now is the time since the queue was made.
func (q *Queue[K]) now() int64 { return int64(time.Since(q.start)) }

// nowIfDueLocked is now where something may be due, else 0, which saves reading the clock.
func (q *Queue[K]) nowIfDueLocked() int64 {
	if q.core.due.next() == never {
		return 0
	}
	return q.now()
}

// laneOf returns the lane of an add in class c.
func (q *Queue[K]) laneOf(c Class) uint8 { return q.class[uint8(c)] }

// classIn returns the class of a lane.
func (q *Queue[K]) classIn(lane uint8) Class { return q.o.Classes[lane>>q.core.split].Class }

// identify works out what it takes to find a key's entry.
func (q *Queue[K]) identify(w *who[K]) bool {
	if q.unsure && !sound(w.key) {
		q.rejectUnsound()
		return false
	}
	w.hash = uint32(maphash.Comparable(q.seed, w.key))
	return true
}

// prepare works out what it takes to make a key's entry. It calls the host's funcs: not under the lock.
func (q *Queue[K]) prepare(w *who[K]) bool {
	if !q.identify(w) {
		return false
	}
	q.assign(w)
	return true
}

// assign gives a key its tenant, unless it has it. It calls the host's funcs: not under the lock.
func (q *Queue[K]) assign(w *who[K]) {
	if q.o.Tenant == nil {
		w.weight = 1
	} else if w.weight == 0 {
		w.tenant, w.weight = q.tenantOf(w.key)
	}
}

// Adder makes keys due and looks at them, but cannot take them. A *Queue is one.
type Adder[K comparable] interface {
	// Add makes a key due now, see [Queue.Add].
	Add(key K)
	// AddWith makes a key due as how states, see [Queue.AddWith].
	AddWith(key K, how How)
	// AddAll makes many keys due, see [Queue.AddAll].
	AddAll(keys []K, how How)
	// Look returns where a key is, see [Queue.Look].
	Look(key K) (state KeyState[K], known bool)
}

// Add adds a key at once. While the key is queued already, it does nothing (W2); while it is held, the key is
// delivered once more after it was settled (W3); while it is paused or parked, the add is remembered. After
// ShutDown, and for a key that is not equal to itself, the add is dropped and counted.
func (q *Queue[K]) Add(key K) {
	if q.unsure {
		q.AddWith(key, How{})
		return
	}
	hash := uint32(maphash.Comparable(q.seed, key))
	q.mu.Lock()
	i := q.core.find(key, hash)
	if q.core.merges(i, q.core.normal) {
		q.mu.Unlock()
		return
	}
	q.addLocked(&who[K]{key: key, hash: hash}, i, q.core.normal, &How{})
}

// AddWith adds a key as how says.
func (q *Queue[K]) AddWith(key K, how How) {
	if how.After > 0 {
		q.addLater(key, &how)
		return
	}
	if q.unsure && !sound(key) {
		q.rejectUnsound()
		return
	}
	hash, lane, reason := uint32(maphash.Comparable(q.seed, key)), q.laneOf(how.Class), reasonIn(&how.Reason)
	q.mu.Lock()
	i := q.core.find(key, hash)
	if q.core.merges(i, lane) && (reason == nil || q.notedLocked(i, reason)) {
		q.mu.Unlock()
		return
	}
	q.addLocked(&who[K]{key: key, hash: hash}, i, lane, &how)
}

// notedLocked counts or records the reason for an add of a ready key that changes nothing else. Not so for its first
// reasons, nor if the key has a due time: that may have come, with a reason that is to be recorded before.
func (q *Queue[K]) notedLocked(i uint32, r *Reason) bool {
	c := &q.core
	if c.notes.off {
		return true
	}
	e := c.entries.at(i)
	x := c.extra(e)
	if x == nil {
		return c.counted(e, r)
	}
	if c.due.has(e.extra) {
		return false
	}
	if !c.counted(e, r) {
		c.notes.add(&x.pending, r, q.now())
	}
	return true
}

// addLocked adds a key, whose entry is i, or none, at once, and unlocks.
func (q *Queue[K]) addLocked(w *who[K], i uint32, lane uint8, how *How) {
	if q.o.Tenant == nil {
		w.weight = 1
	} else if i == 0 { // it need not be asked about a key that has an entry
		q.mu.Unlock()
		q.assign(w)
		q.mu.Lock()
		i = q.core.find(w.key, w.hash)
	}
	if q.o.Own != nil {
		if q.skipLocked(w, how) {
			q.unlock()
			return
		}
		i = q.core.find(w.key, w.hash)
	}
	reason := reasonIn(&how.Reason)
	var now int64
	if q.core.addNeedsNow(i, reason) {
		now = q.now()
	}
	q.core.add(w, i, lane, reason, now)
	q.unlock()
}

func (q *Queue[K]) addLater(key K, how *How) {
	w := who[K]{key: key}
	if !q.prepare(&w) {
		return
	}
	q.mu.Lock()
	q.core.addAfter(&w, q.laneOf(how.Class), reasonIn(&how.Reason), int64(how.After), q.now())
	q.unlock()
	q.tellDelayed(how)
}

// reasonIn returns r, or nil if it is the zero Reason.
func reasonIn(r *Reason) *Reason {
	if r.Source != "" || r.Event != "" || r.Object != "" || r.UID != "" || r.ResourceVersion != "" {
		return r
	}
	return nil
}

// skipLocked asks Own about an add of a key in backoff, without the lock, as often as the key's state changes meanwhile.
func (q *Queue[K]) skipLocked(w *who[K], how *How) bool {
	for asked := uint64(0); ; {
		delivery, in := q.core.inBackoff(w)
		if !in || delivery == asked {
			return false
		}
		q.mu.Unlock()
		q.assign(w) // it may be unknown by the time that the lock is held again
		skip := q.isOwn(w.key, delivery, how.Reason)
		q.mu.Lock()
		if now, in := q.core.inBackoff(w); skip && in && now == delivery {
			return true
		}
		if !skip {
			asked = delivery
		}
	}
}

// AddAll adds many keys under one lock, as AddWith does, those last that Own has to be asked about.
func (q *Queue[K]) AddAll(keys []K, how How) {
	if len(keys) == 1 {
		q.AddWith(keys[0], how)
		return
	}
	ws := make([]who[K], 0, len(keys))
	for _, key := range keys {
		w := who[K]{key: key}
		if q.prepare(&w) {
			ws = append(ws, w)
		}
	}
	if how.After > 0 {
		q.addAllLater(ws, &how)
		return
	}
	var asked []K // keys in backoff, about which Own has to be asked
	lane, reason := q.laneOf(how.Class), reasonIn(&how.Reason)
	q.mu.Lock()
	now := q.now()
	for i := range ws {
		if _, in := q.core.inBackoff(&ws[i]); in && q.o.Own != nil {
			asked = append(asked, ws[i].key)
			continue
		}
		q.core.add(&ws[i], q.core.find(ws[i].key, ws[i].hash), lane, reason, now)
	}
	q.unlock()
	for _, key := range asked {
		q.AddWith(key, how)
	}
}

func (q *Queue[K]) addAllLater(ws []who[K], how *How) {
	lane, reason := q.laneOf(how.Class), reasonIn(&how.Reason)
	q.mu.Lock()
	now := q.now()
	for i := range ws {
		q.core.addAfter(&ws[i], lane, reason, int64(how.After), now)
	}
	q.unlock()
	for range ws {
		q.tellDelayed(how)
	}
}

// Get waits until a key is ready, takes it and returns it: it is held by the caller alone (W1), who must settle it.
// It returns false when ctx is done, without taking a key, and when the queue is shut down and no key is ready.
func (q *Queue[K]) Get(ctx context.Context) (item Item[K], ok bool) {
	if ctx.Err() != nil {
		return item, false
	}
	q.mu.Lock()
	for {
		if i := q.core.take(q.takeTimeLocked()); i != 0 {
			q.handOut(i, &item)
			return item, true
		}
		if q.core.shut {
			q.unlock()
			return item, false
		}
		w := q.waiters.join()
		q.unlock()
		woken := q.wait(ctx, w)
		q.mu.Lock()
		q.leftLocked(w, woken)
		if ctx.Err() != nil {
			q.core.fresh++ // if this one was woken, another must be instead
			q.unlock()
			return item, false
		}
	}
}

// TryGet is Get without waiting: it returns false if no key is ready, or all are paused.
func (q *Queue[K]) TryGet() (item Item[K], ok bool) {
	q.mu.Lock()
	if i := q.core.take(q.takeTimeLocked()); i != 0 {
		q.handOut(i, &item)
		return item, true
	}
	q.unlock()
	return item, false
}

// takeTimeLocked is the time for core.take, or 0 where it makes no difference.
func (q *Queue[K]) takeTimeLocked() int64 {
	if q.core.observed || q.core.due.next() != never {
		return q.now()
	}
	return 0
}

// handOut makes item that of an entry that was taken, and unlocks.
func (q *Queue[K]) handOut(i uint32, item *Item[K]) {
	e := q.core.entries.at(i)
	item.q, item.key, item.index, item.delivery = q, e.key, i, e.delivery
	item.attempt, item.class, item.queued = q.core.attempts(e), e.class, q.core.queued
	since := e.since
	q.unlock()
	if q.hooks.Taken != nil {
		q.tellTaken(hook.QueueTaken{
			Queue: q.o.Name, Class: int(item.Class()), Waited: time.Duration(since - item.queued), Attempt: item.Attempt(),
		})
	}
}
