// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"cmp"
	"slices"
	"time"
)

// core is the queue's state. It has no lock and calls none of the host's functions; Queue locks it
// around each use.
//
// Every known key has one entry, in exactly one State. A ready entry is linked in its flow's list.
// Held entries are linked in the order in which they were taken. Due times and further reasons,
// which few keys have, are in an extra. An entry without content is forgotten.
type core[K comparable] struct {
	store[K]

	heldSince  int64 // sum of since of the held entries
	readySince int64 // when the first of the ready entries became so, after there was none
	counts     [numStates]int
	deliveries uint64
	queued     int64  // when the key that was taken last became ready
	last       uint32 // its entry, which may be free or another key's by now

	normal, urgent uint8 // of adds in classes Normal and Interactive
	split          uint8 // 1 if each class has a lane for retries, else 0
	minInterval    int64
	maxWait        int64
	asks           bool
	adds           map[uint32][]Reason // if asks: immediate adds of held entries

	pausedAll bool
	shut      bool
	observed  bool
	stamped   bool // entries need since, for observers or reasons

	fresh   int // since the last unlock
	dropped [numDrops]int
	news    news // since the last unlock
}

type news struct {
	any     bool
	readied [maxClasses]int
	dropped [numDrops]int
}

const (
	dropWaiting = iota
	dropParked
	dropPaused
	dropDelayed // a due time of a ready or held key
	dropLate    // an add after shutdown
	dropUnequal // a key that is not equal to itself
	numDrops
)

func (c *core[K]) enter(w *who[K]) (uint32, *entry[K]) {
	i := c.find(w.key, w.hash)
	if i == 0 {
		i = c.create(w)
		c.counts[Idle]++
		if c.stamped {
			c.entries.At(i).since = c.now()
		}
	}
	return i, c.entries.At(i)
}

// forget needs an entry that is in no list, as dropAtEnd and rest do.
func (c *core[K]) forget(i uint32, e *entry[K]) {
	c.counts[e.state]--
	c.remove(i, e)
}

// turn changes an entry's state. It reads the clock only if that is needed.
func (c *core[K]) turn(e *entry[K], to State) {
	c.counts[e.state]--
	if to == Ready && c.counts[Ready] == 0 {
		c.readySince = c.now()
	}
	c.counts[to]++
	e.state = to
	if c.observed || to == Waiting || c.stamped && to != Held {
		e.since = c.now()
	}
}

// urgentMost accepts noClass, which is the lowest.
func urgentMost(a, b uint8) uint8 {
	if a == noClass || b != noClass && b > a {
		return b
	}
	return a
}

func (c *core[K]) returning(lane uint8) uint8 { return lane &^ c.split }

// owe makes a key ready now, or after it is settled, woken or resumed.
func (c *core[K]) owe(i uint32, e *entry[K], class uint8) {
	switch e.state {
	case Ready:
		if class > e.class && class != noClass { // to the end of the higher class
			c.pull(e)
			e.class = class
			c.push(i, e)
		}
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
		c.ready(i, e, urgentMost(e.coming, class))
	}
}

// ready makes an entry that is in no list ready, or owed if it is paused.
func (c *core[K]) ready(i uint32, e *entry[K], class uint8) {
	if class == noClass {
		class = c.normal
	}
	c.cancelOwn(e)
	e.flags &^= flagOwed | flagWoken | flagBackoff | flagAdded
	if e.is(flagGivenUp) {
		e.flags &^= flagGivenUp
		c.ext(i, e).attempts = 0
	}
	if e.is(flagPaused) {
		e.coming = class
		e.flags |= flagOwed
		c.turn(e, Paused)
		c.dropAtEnd(i, e, dropPaused)
		return
	}
	if c.shut && c.pausedAll {
		c.dropAtEnd(i, e, dropPaused)
		return
	}
	e.class, e.coming = class, noClass
	c.turn(e, Ready)
	c.push(i, e)
	c.fresh++
	if c.observed {
		c.news.any = true
		c.news.readied[class>>c.split]++
	}
}

// cancelOwn cancels the timer of the key's own settle, and the wait for MinInterval, because the
// delivery is certain.
func (c *core[K]) cancelOwn(e *entry[K]) {
	if x := c.extra(e); x != nil && (x.own != never || x.calm != never) {
		x.own, x.calm, x.latest = never, never, never
		c.setDue(e, x)
	}
}

func (c *core[K]) rest(i uint32, e *entry[K]) {
	x := c.extra(e)
	switch {
	case e.is(flagPaused):
		c.turn(e, Paused)
		c.dropAtEnd(i, e, dropPaused)
	case x != nil && x.due() != never:
		c.turn(e, Waiting)
		c.dropAtEnd(i, e, dropWaiting)
	case x == nil || x.attempts == 0:
		c.forget(i, e)
	default:
		e.coming = noClass
		e.flags &^= flagBackoff
		c.turn(e, Idle)
		c.notes.clear(&x.pending)
	}
}

func (c *core[K]) drop(why int) {
	c.dropped[why]++
	c.news.any = true
	c.news.dropped[why]++
}

func (c *core[K]) dropAtEnd(i uint32, e *entry[K], why int) {
	if !c.shut {
		return
	}
	c.drop(why)
	c.forget(i, e)
}

func (c *core[K]) take() uint32 {
	c.promote()
	if c.counts[Ready] == 0 || c.pausedAll {
		return 0
	}
	i := c.fair.flows[0].head
	if !c.plain {
		class, tenant := c.fair.choose()
		i = c.fair.flows[c.fair.flow(tenant, class)].head
		if c.fair.ready > 1 { // else pull resets all tags
			c.fair.served(class, tenant)
		}
	}
	e := c.entries.At(i)
	c.pull(e)

	c.queued, c.last = e.since, i
	c.deliveries++
	e.delivery = c.deliveries
	e.coming = noClass
	if x := c.extra(e); x != nil {
		x.taken, x.pending = x.pending, noteList{}
	}
	c.turn(e, Held)
	if c.observed { // only observers need the oldest
		c.heldSince += e.since
		c.link(&c.held, i, e)
	}
	return i
}

func (c *core[K]) promote() {
	if c.due.next() == never {
		return
	}
	now := c.now()
	for at := c.due.next(); at <= now; at = c.due.next() {
		c.at = at
		x := c.extras.At(c.due.nodes[0].index)
		i := x.entry
		e := c.entries.At(i)
		switch at {
		case x.own:
			c.fireOwn(i, e, x)
		case x.outside:
			class := x.outsideClass
			x.outside, x.outsideClass = never, noClass
			c.notes.move(&x.pending, &x.later)
			c.setDue(e, x)
			c.owe(i, e, class)
		default:
			x.calm, x.latest = never, never
			c.setDue(e, x)
			if e.state != Held { // the settle of a held key delivers its adds
				c.owe(i, e, e.coming)
			}
		}
	}
	c.at = now
}

func (c *core[K]) fireOwn(i uint32, e *entry[K], x *extra) {
	x.own = never
	c.setDue(e, x)
	if e.state == Parked {
		c.record(i, e, &Reason{Source: sourceQueue, Event: EventParkExpired})
		c.ready(i, e, e.class)
		return
	}
	event := EventAfter
	if e.is(flagBackoff) {
		event = cmp.Or(x.why, EventRetry)
	}
	c.record(i, e, &Reason{Source: sourceQueue, Event: event})
	c.owe(i, e, e.coming)
}

func (c *core[K]) wakes(waiting int) int {
	switch {
	case c.shut:
		return waiting
	case c.pausedAll:
		return 0
	}
	return min(c.fresh, c.counts[Ready])
}

func (c *core[K]) drained() bool { return c.shut && c.counts[Ready] == 0 && c.counts[Held] == 0 }

func (c *core[K]) quiet() bool {
	if c.counts[Held] > 0 {
		return false
	}
	if c.pausedAll {
		return true
	}
	if c.counts[Ready] > 0 || c.counts[Parked] > 0 {
		return false
	}
	if c.counts[Waiting] == 0 {
		return true
	}
	return !slices.ContainsFunc(c.due.nodes, func(n dueNode) bool {
		return c.dueSoon(c.entries.At(c.extras.At(n.index).entry))
	})
}

// soon is the longest backoff that Quiet waits for: by default, of up to eight failures in a row.
const soon = int64(time.Second)

func (c *core[K]) dueSoon(e *entry[K]) bool {
	x := c.extra(e)
	return e.state == Waiting && x != nil && (x.calm != never || e.is(flagBackoff) && x.own != never && x.own-e.since <= soon)
}

func (c *core[K]) shutDown() {
	c.promote()
	c.shut = true
	c.all(func(i uint32, e *entry[K]) {
		switch e.state {
		case Waiting:
			c.dropAtEnd(i, e, dropWaiting)
		case Parked:
			c.dropAtEnd(i, e, dropParked)
		case Paused:
			c.dropAtEnd(i, e, dropPaused)
		case Ready, Held:
			if e.state == Ready && c.pausedAll {
				c.pull(e)
				c.dropAtEnd(i, e, dropPaused)
				return
			}
			c.dropDelays(e)
		}
	})
}

func (c *core[K]) dropDelays(e *entry[K]) {
	x := c.extra(e)
	if x == nil {
		return
	}
	if x.outside != never {
		c.drop(dropDelayed)
	}
	x.outside, x.own, x.calm, x.latest = never, never, never, never
	c.notes.clear(&x.later)
	c.setDue(e, x)
}
