// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"strconv"
	"time"

	"github.com/setpoint-dev/setpoint/internal/slab"
)

// State is the state of a key.
type State uint8

const (
	Idle    State = iota // not queued; the queue knows only its failures
	Waiting              // due later
	Ready                // for Get to take
	Held                 // taken and not yet settled
	Parked               // settled with Park, until Wake
	Paused               // held back until Resume

	numStates = iota
)

var stateNames = [numStates]string{"idle", "waiting", "ready", "held", "parked", "paused"}

// String returns the state's name in lower case.
func (s State) String() string {
	if s < numStates {
		return stateNames[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// MarshalText returns String. The error is nil.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

const (
	flagUsed = 1 << iota // not free
	flagOwed             // owed a delivery, whatever Own reports
	flagPaused
	flagWoken   // Wake was called, so Park does not park
	flagBackoff // waiting after Retry
	flagOnly    // has a note instead of an extra
	flagAdded   // added while held; MinInterval may delay and Own drop it
	flagGivenUp // not retried after its last failure
)

const noClass = 0xff

type entry[K comparable] struct {
	key        K
	delivery   uint64
	since      int64 // when it entered its state
	hash       uint32
	prev, next uint32 // in its flow, or in held
	tenant     uint32
	extra      uint32 // with flagOnly: a note
	state      State
	class      uint8 // its lane
	coming     uint8 // the lane of its next delivery, or noClass
	flags      uint8
}

func (e *entry[K]) is(flag uint8) bool { return e.flags&flag != 0 }

type list struct{ head, tail uint32 }

// extra holds what few entries need. Most queued entries have only one reason, and its note's index
// instead of an extra (flagOnly), which saves 112 bytes. The note belongs to the delivery in
// progress if the entry is held, else to the next one.
type extra struct {
	entry    uint32
	attempts uint32 // in a row
	outside  int64  // from AddOptions.After, or never
	own      int64  // from the key's own Retry, After or Park, or never
	calm     int64  // from MinInterval, or never
	latest   int64  // from MaxWait: limit of calm, or never

	why          string   // parked: ParkReason; in backoff: RetryOptions.Event
	taken        noteList // of the delivery in progress
	pending      noteList // of the next delivery
	later        noteList // of the delivery at outside
	outsideClass uint8
}

func (x *extra) due() int64 { return min(x.outside, x.own, x.calm) }

// who is a key with what the Queue has computed outside the lock.
type who[K comparable] struct {
	key    K
	hash   uint32
	tenant string
	weight float64
}

// clock is the time of one use of the queue, in nanoseconds since start. Reading it takes as long
// as adding a key, so it is read on first use.
type clock struct {
	start time.Time
	at    int64 // 0: not read yet
}

func (c *clock) now() int64 {
	if c.at == 0 {
		c.at = int64(time.Since(c.start))
	}
	return c.at
}

func (c *clock) time(at int64) time.Time { return c.start.Add(time.Duration(at)) }

type store[K comparable] struct {
	clock
	entries slab.Slab[entry[K]]
	index   table
	extras  slab.Slab[extra]
	notes   notes
	due     dueHeap // of extras
	fair    fair
	plain   bool // one class and one tenant: flow 0 is the whole order
	held    list
	most    int // peak of entries since the queue was last empty
}

func (s *store[K]) find(key K, hash uint32) uint32 {
	if s.index.n == 0 {
		return 0
	}
	for i, mask := s.index.probe(hash); ; i = (i + 1) & mask {
		v := s.index.slots[i]
		if v == 0 {
			return 0
		}
		if uint32(v>>32) == hash && s.entries.At(uint32(v)).key == key {
			return uint32(v)
		}
	}
}

func (s *store[K]) create(w *who[K]) uint32 {
	i, e := s.entries.Take()
	e.key, e.hash = w.key, w.hash
	e.coming, e.flags = noClass, flagUsed
	if !s.plain {
		e.tenant = s.fair.tenant(w.tenant, w.weight)
	}
	s.index.insert(w.hash, i)
	s.most = max(s.most, s.index.n)
	return i
}

// keptEntries limits the memory of an empty queue: an initial list does not come back.
const keptEntries = 64 * slab.ChunkLen

// remove frees the memory of an empty queue if that is large, or was mostly unused since the queue
// was last empty.
func (s *store[K]) remove(i uint32, e *entry[K]) {
	s.index.remove(e.hash, i)
	s.dropExtra(e)
	if !s.plain {
		s.fair.leave(e.tenant)
	}
	s.entries.Put(i)
	if s.index.n > 0 {
		return
	}
	if used := int(s.entries.End()); used > keptEntries || 8*s.most < used && used > 8*slab.ChunkLen {
		s.entries.Reset()
		s.extras.Reset()
		s.notes.slab.Reset()
		s.due = dueHeap{}
		s.index = table{}
	}
	s.most = 0
}

func (s *store[K]) all(do func(i uint32, e *entry[K])) { s.some(0, s.entries.End(), do) }

// some visits the entries of places from from to before to.
func (s *store[K]) some(from, to uint32, do func(i uint32, e *entry[K])) {
	for i := max(1, from); i < min(to, s.entries.End()); i++ {
		if e := s.entries.At(i); e.is(flagUsed) {
			do(i, e)
		}
	}
}

func (s *store[K]) heldBy(i uint32, delivery uint64) (*entry[K], bool) {
	if !s.entries.Has(i) {
		return nil, false
	}
	e := s.entries.At(i)
	return e, e.state == Held && e.delivery == delivery
}

func (s *store[K]) flow(e *entry[K]) *list {
	if s.plain {
		return &s.fair.flows[0].list
	}
	return &s.fair.flows[s.fair.flow(e.tenant, e.class)].list
}

func (s *store[K]) push(i uint32, e *entry[K]) {
	s.link(s.flow(e), i, e)
	if !s.plain {
		s.fair.joined(e.tenant, e.class)
	}
}

func (s *store[K]) pull(e *entry[K]) {
	s.unlink(s.flow(e), e)
	if !s.plain {
		s.fair.left(e.tenant, e.class)
	}
}

func (s *store[K]) link(l *list, i uint32, e *entry[K]) {
	e.prev, e.next = l.tail, 0
	if l.tail == 0 {
		l.head = i
	} else {
		s.entries.At(l.tail).next = i
	}
	l.tail = i
}

func (s *store[K]) unlink(l *list, e *entry[K]) {
	if e.prev == 0 {
		l.head = e.next
	} else {
		s.entries.At(e.prev).next = e.next
	}
	if e.next == 0 {
		l.tail = e.prev
	} else {
		s.entries.At(e.next).prev = e.prev
	}
	e.prev, e.next = 0, 0
}

func (s *store[K]) extra(e *entry[K]) *extra {
	if e.extra == 0 || e.is(flagOnly) {
		return nil
	}
	return s.extras.At(e.extra)
}

func (s *store[K]) only(e *entry[K]) noteList {
	if !e.is(flagOnly) {
		return noteList{}
	}
	return noteList{first: e.extra, newest: e.extra, n: 1}
}

func (s *store[K]) ext(i uint32, e *entry[K]) *extra {
	if x := s.extra(e); x != nil {
		return x
	}
	only := s.only(e)
	e.flags &^= flagOnly
	var x *extra
	e.extra, x = s.extras.Take()
	x.entry, x.outside, x.own, x.calm, x.latest = i, never, never, never, never
	if e.state == Held {
		x.taken = only
	} else {
		x.pending = only
	}
	return x
}

func (s *store[K]) dropExtra(e *entry[K]) {
	if x := s.extra(e); x != nil {
		s.due.set(e.extra, never)
		s.notes.clear(&x.taken)
		s.notes.clear(&x.pending)
		s.notes.clear(&x.later)
		s.extras.Put(e.extra)
	} else if e.is(flagOnly) {
		s.notes.slab.Put(e.extra)
	}
	e.extra = 0
	e.flags &^= flagOnly
}

func (s *store[K]) setDue(e *entry[K], x *extra) { s.due.set(e.extra, x.due()) }

func (s *store[K]) attempts(e *entry[K]) uint32 {
	if x := s.extra(e); x != nil {
		return x.attempts
	}
	return 0
}

func (s *store[K]) record(i uint32, e *entry[K], r *Reason) {
	if s.notes.off || r.empty() {
		return
	}
	var newest uint32
	x := s.extra(e)
	switch {
	case x != nil:
		newest = x.pending.newest
	case e.state != Held:
		newest = e.extra
	}
	switch {
	case s.notes.repeats(newest, r):
	case e.extra == 0 && e.state != Held:
		var only *note
		e.extra, only = s.notes.slab.Take()
		s.notes.write(only, r, s.now())
		e.flags |= flagOnly
	default:
		s.notes.add(&s.ext(i, e).pending, r, s.now())
	}
}

func (s *store[K]) lists(e *entry[K]) (taken, next, later noteList) {
	if x := s.extra(e); x != nil {
		return x.taken, x.pending, x.later
	}
	if e.state == Held {
		return s.only(e), noteList{}, noteList{}
	}
	return noteList{}, s.only(e), noteList{}
}

func (s *store[K]) delivered(taken noteList, queued int64) []Reason {
	if taken.n > 0 || s.notes.off {
		return s.notes.appendTo(nil, taken)
	}
	r := Reason{Source: sourceQueue, Event: EventAdded}
	if queued != 0 {
		r.At = s.time(queued).Round(0)
	}
	return []Reason{r}
}
