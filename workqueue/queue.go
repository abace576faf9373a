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

	mu      sync.Mutex // guards what follows
	core    core[K]
	waiters waiters
	timer   *time.Timer   // wakes one waiter when the next key is due
	armed   int64         // what timer is set to, or never
	drained chan struct{} // closed when the queue is drained; nil while nobody waits for that
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
	if len(o.Classes) == 0 {
		o.Classes = []Share{{Normal, 1}}
	}
	q := &Queue[K]{o: o, start: time.Now(), seed: maphash.MakeSeed(), unsure: unsure[K](), armed: never}
	q.timer = time.NewTimer(time.Hour)
	q.timer.Stop()

	shares := make([]share, len(o.Classes))
	for i, s := range o.Classes {
		shares[i] = share{class: s.Class, weight: s.Weight}
		for c := range q.class {
			if int8(c) >= int8(s.Class) {
				q.class[c] = uint8(i)
			}
		}
	}
	q.core = newCore[K](shares, len(shares) == 1 && o.Tenant == nil)
	q.core.normal, q.core.urgent = q.classOf(Normal), q.classOf(Interactive)
	q.core.minInterval, q.core.maxWait = int64(o.MinInterval), int64(o.MaxWait)
	q.core.notes.off, q.core.notes.most = o.Reasons < 0, uint32(max(o.Reasons, 0))
	q.opened()
	return q, nil
}

// now is the time since the queue was made.
func (q *Queue[K]) now() int64 { return int64(time.Since(q.start)) }

// nowIfDue is now where something may be due, else 0, which saves reading the clock.
func (q *Queue[K]) nowIfDueLocked() int64 {
	if q.core.due.next() == never {
		return 0
	}
	return q.now()
}

func (q *Queue[K]) classOf(c Class) uint8 { return q.class[uint8(c)] }

// who works out what the core needs to know of a key. It calls the host's funcs: not under the lock.
func (q *Queue[K]) who(key K) (who[K], bool) {
	w := who[K]{key: key, weight: 1}
	if q.unsure && !sound(key) {
		q.rejectUnsound()
		return w, false
	}
	w.hash = uint32(maphash.Comparable(q.seed, key))
	if q.o.Tenant != nil {
		w.tenant, w.weight = q.tenantOf(key)
	}
	return w, true
}

// Add adds a key at once. While the key is queued already, it does nothing (W2); while it is held, the key is
// delivered once more after it was settled (W3); while it is paused or parked, the add is remembered. After
// ShutDown, and for a key that is not equal to itself, the add is dropped and counted.
func (q *Queue[K]) Add(key K) { q.AddWith(key, How{}) }

// AddWith adds a key as how says.
func (q *Queue[K]) AddWith(key K, how How) {
	w, ok := q.who(key)
	if !ok {
		return
	}
	q.mu.Lock()
	if how.After > 0 {
		q.core.addAfter(&w, q.classOf(how.Class), reasonIn(&how), int64(how.After), q.now())
		q.unlock()
		q.delayed(how)
		return
	}
	if q.o.SkipInBackoff != nil && q.skipLocked(&w, how) {
		q.unlock()
		return
	}
	delivery := q.core.add(&w, q.classOf(how.Class), reasonIn(&how), q.now())
	q.unlock()
	if delivery != 0 && q.o.AddedWhileHeld != nil {
		q.addedWhileHeld(key, delivery, how)
	}
}

// reasonIn returns how's reason, or nil if there is none.
func reasonIn(how *How) *Reason {
	if how.Reason == (Reason{At: how.Reason.At}) {
		return nil
	}
	return &how.Reason
}

// skipLocked asks SkipInBackoff, without the lock, as often as the key's state changes meanwhile.
func (q *Queue[K]) skipLocked(w *who[K], how How) bool {
	for asked := uint64(0); ; {
		delivery, in := q.core.inBackoff(w)
		if !in || delivery == asked {
			return false
		}
		q.mu.Unlock()
		skip := q.skipInBackoff(w.key, delivery, how)
		q.mu.Lock()
		if now, in := q.core.inBackoff(w); skip && in && now == delivery {
			return true
		}
		if !skip {
			asked = delivery
		}
	}
}

// AddAll adds many keys under one lock, as AddWith does.
func (q *Queue[K]) AddAll(keys []K, how How) {
	if q.o.AddedWhileHeld != nil || q.o.SkipInBackoff != nil || how.After > 0 {
		for _, key := range keys {
			q.AddWith(key, how)
		}
		return
	}
	var ws []who[K]
	if q.o.Tenant != nil || q.unsure {
		ws = make([]who[K], 0, len(keys))
		for _, key := range keys {
			if w, ok := q.who(key); ok {
				ws = append(ws, w)
			}
		}
	}
	class, reason := q.classOf(how.Class), reasonIn(&how)
	q.mu.Lock()
	now := q.now()
	for i := range ws {
		q.core.add(&ws[i], class, reason, now)
	}
	if ws == nil {
		for _, key := range keys {
			w := who[K]{key: key, hash: uint32(maphash.Comparable(q.seed, key))}
			q.core.add(&w, class, reason, now)
		}
	}
	q.unlock()
}

// Get waits until a key is ready, takes it and returns it: it is held by the caller alone (W1), who must settle it.
// It returns false when ctx is done, without taking a key, and when the queue is shut down and no key is ready.
func (q *Queue[K]) Get(ctx context.Context) (Item[K], bool) {
	if ctx.Err() != nil {
		return Item[K]{}, false
	}
	q.mu.Lock()
	for {
		if item, ok := q.takeLocked(); ok {
			return item, true
		}
		if q.core.shut {
			q.unlock()
			return Item[K]{}, false
		}
		w := q.waiters.join()
		q.unlock()
		woken := q.wait(ctx, w)
		q.mu.Lock()
		q.leftLocked(w, woken)
		if ctx.Err() != nil {
			q.unlock()
			return Item[K]{}, false
		}
	}
}

// takeLocked takes a key and unlocks, or does neither.
func (q *Queue[K]) takeLocked() (Item[K], bool) {
	now := q.now()
	i := q.core.take(now)
	if i == 0 {
		return Item[K]{}, false
	}
	e := q.core.entries.at(i)
	item := Item[K]{q: q, key: e.key, index: i, delivery: e.delivery, attempt: e.attempts, class: e.class, queued: q.core.queued}
	q.unlock()
	if q.o.Hooks != nil && q.o.Hooks.Taken != nil {
		q.report("Taken", func(h *hook.Queue) {
			h.Taken(hook.QueueTaken{Queue: q.o.Name, Class: int(item.Class()), Waited: time.Duration(now - item.queued), Attempt: item.Attempt()})
		})
	}
	return item, true
}
