// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import "time"

// KeyState describes one key.
type KeyState[K comparable] struct {
	Key    K
	State  State
	Class  Class  // Normal if the key has none yet
	Tenant string // "" without Options.Tenant
	// Since is when the key entered its state. Without hooks it is zero for a held key, and for all
	// keys if Options.Reasons is negative.
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
	At   time.Time // when the copy was made
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

// Snapshot returns a copy of the whole state at one moment. It locks the queue, about 0.3 s for a
// million keys: use it for debugging and tests.
func (q *Queue[K]) Snapshot() Snapshot[K] {
	q.lock()
	defer q.unlock()
	s := Snapshot[K]{
		Name: q.o.Name, At: q.core.time(q.core.now()), Len: q.core.len(),
		Paused: q.core.pausedAll, ShutDown: q.core.shut,
		Dropped: map[string]int{}, Misused: q.misused, Panics: int(q.panics.Load()),
		Keys: make([]KeyState[K], 0, q.core.index.n),
	}
	for d, name := range dropNames {
		if n := q.core.dropped[d]; n > 0 {
			s.Dropped[name] = n
		}
	}
	q.core.all(func(_ uint32, e *entry[K]) { s.Keys = append(s.Keys, q.stateLocked(e)) })
	return s
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
	return q.stateLocked(q.core.entries.at(i)), true
}

func (q *Queue[K]) stateLocked(e *entry[K]) KeyState[K] {
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
	if e.state == Held {
		k.Reasons = q.core.delivered(taken, 0)
	}
	k.Reasons = append(append(k.Reasons, q.core.notes.copyOf(next)...), q.core.notes.copyOf(later)...)
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
