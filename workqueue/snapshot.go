// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import "time"

// KeyState is what the queue knows of one key.
type KeyState[K comparable] struct {
	Key    K
	State  State
	Class  Class // of a key that has none yet: Normal
	Tenant string
	// Since is when the key came into its state. It is zero for a held key if Options.Hooks is not set (the queue
	// does not read the clock then when a key is taken), and for all keys if Options.Reasons is negative besides.
	Since time.Time `json:",omitzero"`
	// Due is when the key becomes ready by itself, or is added again if it is ready or held; zero: not.
	Due time.Time `json:",omitzero"`
	// Attempts is the number of failures in a row.
	Attempts int
	// Paused reports that the key was paused; one that is held or parked will be paused when that is over.
	Paused bool
	// Again reports that a held key will be delivered once more, or that a paused one is ready when resumed.
	Again bool
	// ParkReason is why the key is parked.
	ParkReason string
	// Reasons are those of its next delivery, or of the present one followed by those of the next.
	Reasons        []Reason
	ReasonsDropped int
}

// Snapshot is a copy of a queue's whole state at one moment (W11).
type Snapshot[K comparable] struct {
	Name string
	At   time.Time
	Len  Len
	// Paused reports that PauseAll was called, ShutDown that ShutDown or Drain was.
	Paused, ShutDown bool
	// Dropped counts the keys and adds that were dropped, by why (see hook.QueueDropped).
	Dropped map[string]int
	// Misused and Panics count the calls that broke the contract and the host's funcs that panicked.
	Misused, Panics int
	// Keys are all keys, in no particular order.
	Keys []KeyState[K]
}

// Snapshot returns a copy of the whole state. It holds the lock for as long as it takes to copy (some 0.3 s for a
// million keys): for debugging and tests, not for each key's sake; see Lookup.
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

// Lookup returns what the queue knows of one key, or false if it does not know it. It is cheap.
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
	switch {
	case e.state == Ready || e.state == Held || e.state == Parked:
		k.Class = q.classIn(e.class)
	case e.coming != noClass:
		k.Class = q.classIn(e.coming)
	}
	taken, next, later := q.core.lists(e)
	if e.state == Held {
		k.Reasons = q.core.delivered(taken, 0)
	}
	k.Reasons = append(append(k.Reasons, q.core.notes.copyOf(next)...), q.core.notes.copyOf(later)...)
	k.ReasonsDropped = int(taken.dropped + next.dropped + later.dropped)
	x := q.core.extra(e)
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
