// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"iter"
	"runtime"
	"time"

	"github.com/setpoint-dev/setpoint/internal/slab"
)

// KeyState describes one key.
type KeyState[K comparable] struct {
	Key    K
	State  State
	Class  Class  // Normal if the key has none yet
	Tenant string // "" without Options.Tenant
	// Since is when the key entered its state. Without observers it is zero for a held key, and for
	// all keys if Options.Reasons is negative.
	Since time.Time `json:",omitzero"`
	// Due is when a waiting key becomes ready, or a ready or held key is added again. Zero: never.
	Due time.Time `json:",omitzero"`
	// Attempts is the number of failures in a row.
	Attempts int
	// Paused reports that Pause was called. A held or parked key becomes paused afterwards.
	Paused bool
	// Again reports that a held key will be delivered once more, or a paused one after Resume.
	Again      bool
	ParkReason string // the argument of Park, while parked
	// Reasons has the reasons of the delivery in progress, if any, then the reasons of the next
	// one.
	Reasons        []Reason
	ReasonsDropped int
}

// Snapshot is a copy of a queue's whole state.
type Snapshot[K comparable] struct {
	Name string    // of Options
	At   time.Time // when the copy was begun; Len and the counters are from then
	Len  Len
	// Paused: Pause is in effect. ShutDown: ShutDown or Drain was called.
	Paused, ShutDown bool
	// Dropped counts dropped keys and adds by cause (see hook.QueueDropped).
	Dropped map[string]int
	// Misused counts calls that broke the contract, Panics panics of the functions in Options.
	Misused, Panics int
	// Keys are in no particular order.
	Keys []KeyState[K]
}

// Snapshot returns a copy of the whole state, for debugging and tests. Each key is as it was at
// some moment during the call: see guarantee W11. For a million keys it takes about a second and
// 200 MB. It locks the queue for 256 keys at a time.
func (q *Queue[K]) Snapshot() Snapshot[K] {
	s, n := q.summary()
	s.Keys = make([]KeyState[K], 0, n)
	var reasons []Reason // of a part: nothing is allocated for each key under the lock
	before := func() { reasons = make([]Reason, 0, slab.ChunkLen+slab.ChunkLen/2) }
	read := func(e *entry[K]) KeyState[K] { return q.stateLocked(e, &reasons) }
	for part := range inParts(q, before, read) {
		s.Keys = append(s.Keys, part...)
	}
	return s
}

// Keys returns all keys, in no particular order, without their states. The loop locks the queue
// for 256 keys at a time, and not during its body. W11 holds for the loop.
func (q *Queue[K]) Keys() iter.Seq[K] {
	return func(yield func(K) bool) {
		for part := range inParts(q, func() {}, func(e *entry[K]) K { return e.key }) {
			for _, k := range part {
				if !yield(k) {
					return
				}
			}
		}
	}
}

// summary returns a Snapshot without keys, and the number of keys.
func (q *Queue[K]) summary() (s Snapshot[K], keys int) {
	q.lock()
	defer q.unlock()
	s = Snapshot[K]{
		Name: q.o.Name, At: q.core.time(q.core.now()), Len: q.core.len(),
		Paused: q.core.pausedAll, ShutDown: q.core.shut,
		Dropped: map[string]int{}, Misused: q.misused, Panics: int(q.panics.Load()),
	}
	for d, name := range dropNames {
		if n := q.core.dropped[d]; n > 0 {
			s.Dropped[name] = n
		}
	}
	return s, q.core.index.n
}

// inParts reads each entry under the lock, a chunk at a time, and calls before without it. An entry
// keeps its place as long as the queue knows its key. A part is valid until the next one.
func inParts[K comparable, T any](q *Queue[K], before func(), read func(*entry[K]) T) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		part, end := make([]T, 0, slab.ChunkLen), q.places()
		for from := uint32(0); from < end; from += slab.ChunkLen {
			before()
			// The garbage collector may stop a goroutine for up to 20 ms, also under the lock. It
			// mostly spares one that has just yielded.
			runtime.Gosched()
			if part = readPart(q, from, part[:0], read); !yield(part) {
				return
			}
		}
	}
}

// places returns the end of the entries' places. Later keys need not be shown.
func (q *Queue[K]) places() uint32 {
	q.lock()
	defer q.unlock()
	return q.core.entries.End()
}

func readPart[K comparable, T any](q *Queue[K], from uint32, to []T, read func(*entry[K]) T) (part []T) {
	q.lock()
	defer q.unlock()
	q.core.promote() // due keys are ready
	q.core.some(from, from+slab.ChunkLen, func(_ uint32, e *entry[K]) { to = append(to, read(e)) })
	return to
}

// Lookup returns the state of a key, or false if the queue does not know it. It is cheap.
func (q *Queue[K]) Lookup(key K) (KeyState[K], bool) {
	w := who[K]{key: key}
	if !q.identify(&w) {
		return KeyState[K]{}, false
	}
	q.lock()
	defer q.unlock()
	q.core.promote()
	i := q.core.find(key, w.hash)
	if i == 0 {
		return KeyState[K]{}, false
	}
	return q.stateLocked(q.core.entries.At(i), new([]Reason)), true
}

// stateLocked appends the reasons to a buffer.
func (q *Queue[K]) stateLocked(e *entry[K], reasons *[]Reason) KeyState[K] {
	k := KeyState[K]{
		Key: e.key, State: e.state, Attempts: int(q.core.attempts(e)),
		Paused: e.is(flagPaused), Again: e.flags&(flagOwed|flagAdded) != 0, Tenant: q.core.fair.tenants[e.tenant].name,
	}
	if q.core.observed || q.core.stamped && e.state != Held {
		k.Since = q.core.time(e.since)
	}
	x := q.core.extra(e)
	switch {
	case e.state == Ready || e.state == Held || e.state == Parked:
		k.Class = q.classIn(e.class)
	case e.coming != noClass:
		k.Class = q.classIn(e.coming)
	case x != nil && x.outside != never:
		k.Class = q.classIn(x.outsideClass)
	}
	taken, next, later := q.core.lists(e)
	r := *reasons
	if e.state == Held {
		r = append(r, q.core.delivered(taken, 0)...)
	}
	r = q.core.notes.appendTo(q.core.notes.appendTo(r, next), later)
	if n := len(*reasons); len(r) > n {
		k.Reasons = r[n:len(r):len(r)]
	}
	*reasons = r
	k.ReasonsDropped = int(taken.dropped + next.dropped + later.dropped)
	if x == nil {
		return k
	}
	if due := x.due(); due != never {
		k.Due = q.core.time(due)
	}
	if e.state == Parked {
		k.ParkReason = x.why
	}
	return k
}
