// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"strconv"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// State is where a key is.
type State uint8

// The states of a key.
const (
	Idle    State = iota // known only for its failures, see Interface
	Waiting              // due later, or not added again for MinInterval
	Ready                // to be taken
	Held                 // taken and not yet settled
	Parked               // settled with Park, to be woken
	Paused               // not to be delivered until it is resumed

	numStates = iota
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Idle:
		return "idle"
	case Waiting:
		return "waiting"
	case Ready:
		return "ready"
	case Held:
		return "held"
	case Parked:
		return "parked"
	case Paused:
		return "paused"
	}
	return "state " + itoa(int(s))
}

// MarshalText returns String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func itoa(i int) string { return strconv.Itoa(i) }

// Len is how many keys are in each state. A paused key that is held counts as held.
type Len struct {
	Ready, Waiting, Held, Parked, Paused int
}

// Total is the number of all keys.
func (l Len) Total() int { return l.Ready + l.Waiting + l.Held + l.Parked + l.Paused }

// Len returns how many keys are in each state. It is cheap.
func (q *Queue[K]) Len() Len {
	q.mu.Lock()
	defer q.unlock()
	return q.lenLocked(q.nowIfDueLocked())
}

func (q *Queue[K]) lenLocked(now int64) Len {
	q.core.promote(now)
	n := &q.core.counts
	return Len{Ready: n[Ready], Waiting: n[Waiting], Held: n[Held], Parked: n[Parked], Paused: n[Paused]}
}

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
	// Paused tells that the key was paused; one that is held or parked will be paused when that is over.
	Paused bool
	// Again tells that a held key will be delivered once more, or that a paused one is ready when resumed.
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
	// Paused tells that PauseAll was called, ShutDown that ShutDown or Drain was.
	Paused, ShutDown bool
	// Dropped counts the keys and adds that were dropped, by why (see hook.QueueDropped).
	Dropped map[string]int
	// Misused and Panics count the calls that broke the contract and the host's funcs that panicked.
	Misused, Panics int
	// Keys are all keys, in no particular order.
	Keys []KeyState[K]
}

// Snapshot returns a copy of the whole state. It holds the lock for as long as it takes to copy (some 0.3 s for a
// million keys): for debugging and tests, not for each key's sake; see Look.
func (q *Queue[K]) Snapshot() Snapshot[K] {
	q.mu.Lock()
	defer q.unlock()
	now := q.now()
	s := Snapshot[K]{
		Name: q.o.Name, At: q.start.Add(time.Duration(now)), Len: q.lenLocked(now),
		Paused: q.core.pausedAll, ShutDown: q.core.shut,
		Dropped: q.stats.byName(), Misused: q.stats.misused, Panics: int(q.stats.panics.Load()),
		Keys: make([]KeyState[K], 0, q.core.index.n),
	}
	for d, n := range q.core.dropped {
		if n > 0 {
			s.Dropped[dropNames[d]] += n
		}
	}
	for i := uint32(1); i < q.core.entries.used; i++ {
		if e := q.core.entries.at(i); e.is(flagUsed) {
			s.Keys = append(s.Keys, q.stateLocked(e))
		}
	}
	return s
}

// Look returns what the queue knows of one key, or false if it does not know it. It is cheap.
func (q *Queue[K]) Look(key K) (KeyState[K], bool) {
	w := who[K]{key: key}
	if !q.identify(&w) {
		return KeyState[K]{}, false
	}
	q.mu.Lock()
	defer q.unlock()
	q.core.promote(q.nowIfDueLocked())
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
		k.Since = q.start.Add(time.Duration(e.since))
	}
	switch {
	case e.state == Ready || e.state == Held || e.state == Parked:
		k.Class = q.classIn(e.class)
	case e.coming != noClass:
		k.Class = q.classIn(e.coming)
	}
	k.Reasons, k.ReasonsDropped = q.reasonsLocked(e)
	x := q.core.extra(e)
	if x == nil {
		return k
	}
	if due := min(x.outside, x.own, x.calm); due != never {
		k.Due = q.start.Add(time.Duration(due))
	}
	if e.state == Parked {
		k.ParkReason = x.why
	}
	return k
}

// reasonsLocked are all of a key's reasons. A delivery that has none was added without any.
func (q *Queue[K]) reasonsLocked(e *entry[K]) (all []Reason, dropped int) {
	var only, none noteList
	lists := []*noteList{&only, &none, &none}
	if x := q.core.extra(e); x != nil {
		lists = []*noteList{&x.taken, &x.pending, &x.later}
	} else {
		only = q.core.only(e)
	}
	if e.state == Held && lists[0].n == 0 && !q.core.notes.off {
		all = append(all, q.added(0))
	}
	for _, l := range lists {
		all = append(all, q.core.notes.copyOf(l)...)
		dropped += int(l.dropped)
	}
	return all, dropped
}

// queueStats are the figures for hook.QueueOpened.
func (q *Queue[K]) queueStats() hook.QueueStats {
	q.mu.Lock()
	defer q.unlock()
	now := q.now()
	l := q.lenLocked(now)
	s := hook.QueueStats{
		Ready: l.Ready, Waiting: l.Waiting, Held: l.Held, Parked: l.Parked, Paused: l.Paused,
		ReadyByClass: make(map[int]int, len(q.core.fair.classes)),
		Unfinished:   time.Duration(int64(l.Held)*now - q.core.heldSince),
	}
	for _, c := range q.core.fair.classes {
		s.ReadyByClass[int(c.class)] += c.ready
	}
	if q.core.plain {
		s.ReadyByClass[int(q.o.Classes[0].Class)] = l.Ready
	}
	if i := q.core.held.head; i != 0 {
		s.Longest = time.Duration(now - q.core.entries.at(i).since)
	}
	return s
}
