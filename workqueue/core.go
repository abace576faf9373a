// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

// core is the queue's state: which key is in which state, in what order, and when it is due. It has no lock and no
// clock and calls nobody's code: the shell around it (Queue) holds the lock and passes the time, in nanoseconds since
// the queue was made, and never a smaller one than before; or 0 where it is only a record of since when something is
// so, which nobody wants (stamped).
//
// Every key that is known has one entry. An entry is in exactly one State; ready ones are linked in their flow's
// list, held ones in the order in which they were taken. What most keys do not have (due times, several reasons) is
// in an extra. An entry that holds nothing any more is forgotten.
type core[K comparable] struct {
	entries slab[entry[K]]
	index   table
	extras  slab[extra]
	notes   notes
	due     dueHeap // of extras
	fair    fair
	plain   bool // one class and one tenant: flow 0 is the whole order

	held       list
	heldSince  int64 // sum of the held entries' since
	counts     [numStates]int
	deliveries uint64
	queued     int64  // when the key that was taken last had become ready
	last       uint32 // its entry, which may be in use for another key, or for none
	most       int    // entries since the queue was last empty, at most

	normal, urgent uint8 // the lanes of adds in classes Normal and Interactive
	split          uint8 // 1 if each class has a lane for returns, else 0: see lane.go
	minInterval    int64
	maxWait        int64
	asks           bool                // Own is set
	adds           map[uint32][]Reason // if asks: the immediate adds of held entries

	pausedAll bool
	shut      bool
	observed  bool // somebody wants to know what became ready
	stamped   bool // somebody wants to know since when

	fresh   int             // keys that became ready since the shell last looked
	news    bool            // readied or dropped is not zero
	readied [maxClasses]int // the same by class
	dropped [numDrops]int   // what was dropped since the shell last looked
}

// Why something was dropped.
const (
	dropWaiting = iota
	dropParked
	dropPaused
	dropDelayed // a due time that a ready or held key had besides
	dropLate    // an add after shutdown
	dropUnequal // a key that is not equal to itself
	numDrops
)

const noClass = 0xff

// Flags of an entry.
const (
	flagUsed    = 1 << iota // not a free place
	flagOwed                // held or paused: owed a delivery, whatever Own reports
	flagPaused              // Pause was called
	flagWoken               // held: Wake was called, so that Park does not park
	flagBackoff             // waiting after Retry
	flagOnly                // instead of an extra, it has one note: see extra.go
	flagAdded               // held: added since, which MinInterval may put off and Own may take back
)

// entry is what is known of one key.
type entry[K comparable] struct {
	key        K
	delivery   uint64 // the number of its last delivery; of the present one while it is held
	since      int64  // since when it is in its state
	hash       uint32
	prev, next uint32 // in its flow, or among the held
	tenant     uint32
	extra      uint32 // or, with flagOnly, a note
	state      State
	class      uint8 // ready, held, parked: its lane
	coming     uint8 // others: the lane it will have when it becomes ready, or noClass
	flags      uint8
}

func (e *entry[K]) is(flag uint8) bool { return e.flags&flag != 0 }

// list is a list of entries, oldest first.
type list struct{ head, tail uint32 }

func newCore[K comparable](classes []share, plain bool) core[K] {
	c := core[K]{fair: newFair(classes), plain: plain}
	if plain {
		c.fair.tenant("", 1)
	}
	return c
}

// find returns the index of a key's entry, or 0.
func (c *core[K]) find(key K, hash uint32) uint32 {
	if c.index.n == 0 {
		return 0
	}
	for i, mask := c.index.probe(hash); ; i = (i + 1) & mask {
		v := c.index.slots[i]
		if v == 0 {
			return 0
		}
		if uint32(v>>32) == hash && c.entries.at(uint32(v)).key == key {
			return uint32(v)
		}
	}
}

// who is a key with what the shell has worked out for it.
type who[K comparable] struct {
	key    K
	hash   uint32
	tenant string
	weight float64
}

// enter returns the entry of a key, a new idle one if need be.
func (c *core[K]) enter(w *who[K], now int64) (uint32, *entry[K]) {
	i := c.find(w.key, w.hash)
	if i == 0 {
		i = c.create(w, now)
	}
	return i, c.entries.at(i)
}

// create makes an idle entry for a key that has none.
func (c *core[K]) create(w *who[K], now int64) uint32 {
	i, e := c.entries.take()
	e.key, e.hash, e.since = w.key, w.hash, now
	e.coming, e.flags = noClass, flagUsed
	if !c.plain {
		e.tenant = c.fair.tenant(w.tenant, w.weight)
	}
	c.index.insert(w.hash, i)
	c.counts[Idle]++
	c.most = max(c.most, c.index.n)
	return i
}

// forget removes an idle entry that holds nothing any more.
func (c *core[K]) forget(i uint32, e *entry[K]) {
	c.counts[Idle]--
	c.index.remove(e.hash, i)
	c.dropExtra(e)
	if !c.plain {
		c.fair.leave(e.tenant)
	}
	c.entries.put(i)
	if c.index.n == 0 {
		c.shrink()
	}
}

// keptEntries is how many entries an empty queue keeps room for, at most: an initial list does not come back.
const keptEntries = 64 * chunkLen

// shrink gives memory back when the queue is empty, if it has a lot, or lately needed far less than it has.
func (c *core[K]) shrink() {
	if c.entries.used > keptEntries || 8*c.most < int(c.entries.used) && c.entries.used > 8*chunkLen {
		c.entries.reset()
		c.extras.reset()
		c.notes.reset()
		c.due.reset()
		c.index = table{}
	}
	c.most = 0
}

func (c *core[K]) turn(e *entry[K], to State, now int64) {
	c.counts[e.state]--
	c.counts[to]++
	e.state, e.since = to, now
}

// urgentMost returns the higher of two classes, either of which may be none.
func urgentMost(a, b uint8) uint8 {
	if a == noClass || b != noClass && b > a {
		return b
	}
	return a
}

// owe gives a key a delivery: it becomes ready, or stays so, or will be once it is settled, woken or resumed.
func (c *core[K]) owe(i uint32, e *entry[K], class uint8, now int64) {
	switch e.state {
	case Ready:
		c.raise(i, e, class)
	case Held:
		e.flags |= flagOwed
		e.coming = urgentMost(e.coming, class)
	case Parked:
		e.class = urgentMost(e.class, class)
	case Paused:
		e.flags |= flagOwed
		e.coming = urgentMost(e.coming, class)
		c.cancelOwn(e)
	default:
		c.ready(i, e, urgentMost(e.coming, class), now)
	}
}

// ready makes an entry that is in no list ready, or, while it is paused, owed.
func (c *core[K]) ready(i uint32, e *entry[K], class uint8, now int64) {
	if class == noClass {
		class = c.normal
	}
	c.cancelOwn(e)
	e.flags &^= flagOwed | flagWoken | flagBackoff | flagAdded
	if e.is(flagPaused) {
		e.coming = class
		e.flags |= flagOwed
		c.turn(e, Paused, now)
		c.dropAtEnd(i, e, dropPaused)
		return
	}
	if c.shut && c.pausedAll {
		c.dropAtEnd(i, e, dropPaused)
		return
	}
	e.class, e.coming = class, noClass
	c.turn(e, Ready, now)
	c.push(i, e)
	c.fresh++
	if c.observed {
		c.news = true
		c.readied[class>>c.split]++
	}
}

// cancelOwn ends the timer that the key's own settle had set, and what waits for MinInterval: the delivery that they
// were for is certain.
func (c *core[K]) cancelOwn(e *entry[K]) {
	x := c.extra(e)
	if x == nil {
		return
	}
	if x.own != never || x.calm != never {
		x.own, x.calm, x.latest = never, never, never
		c.setDue(e, x)
	}
}

// raise moves a ready key to the end of a higher class.
func (c *core[K]) raise(i uint32, e *entry[K], class uint8) {
	if class > e.class && class != noClass {
		c.pull(i, e)
		e.class = class
		c.push(i, e)
	}
}

// rest puts an entry that is in no list, and has nothing to deliver now, where it belongs.
func (c *core[K]) rest(i uint32, e *entry[K], now int64) {
	x := c.extra(e)
	due := x != nil && c.due.has(e.extra)
	switch {
	case e.is(flagPaused):
		c.turn(e, Paused, now)
		c.dropAtEnd(i, e, dropPaused)
	case due:
		c.turn(e, Waiting, now)
		c.dropAtEnd(i, e, dropWaiting)
	default:
		e.coming = noClass
		e.flags &^= flagBackoff
		c.turn(e, Idle, now)
		if x == nil || x.attempts == 0 {
			c.forget(i, e)
			return
		}
		c.notes.clear(&x.pending)
	}
}

// drop counts what was dropped.
func (c *core[K]) drop(why int) {
	c.dropped[why]++
	c.news = true
}

// dropAtEnd drops an entry that is in no list, if the queue is shut down.
func (c *core[K]) dropAtEnd(i uint32, e *entry[K], why int) {
	if !c.shut {
		return
	}
	c.drop(why)
	c.turn(e, Idle, e.since)
	c.forget(i, e)
}
