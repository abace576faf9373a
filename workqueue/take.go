// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import "cmp"

// push links a ready entry to the end of its flow.
func (c *core[K]) push(i uint32, e *entry[K]) {
	k := uint32(0)
	if !c.plain {
		k = e.tenant*uint32(len(c.fair.classes)) + uint32(e.class)
	}
	fl := &c.fair.flows[k]
	e.prev, e.next = fl.tail, 0
	if fl.tail == 0 {
		fl.head = i
	} else {
		c.entries.at(fl.tail).next = i
	}
	fl.tail = i
	if !c.plain {
		c.fair.joined(k, e.class)
	}
}

// pull unlinks a ready entry from its flow.
func (c *core[K]) pull(i uint32, e *entry[K]) {
	k := uint32(0)
	if !c.plain {
		k = e.tenant*uint32(len(c.fair.classes)) + uint32(e.class)
	}
	fl := &c.fair.flows[k]
	c.unlink(&fl.head, &fl.tail, e)
	if !c.plain {
		c.fair.left(e.class)
	}
}

func (c *core[K]) unlink(head, tail *uint32, e *entry[K]) {
	if e.prev == 0 {
		*head = e.next
	} else {
		c.entries.at(e.prev).next = e.next
	}
	if e.next == 0 {
		*tail = e.prev
	} else {
		c.entries.at(e.next).prev = e.prev
	}
	e.prev, e.next = 0, 0
}

// take takes the key whose turn it is (W5, W6, W7), or returns 0. The key is then held.
func (c *core[K]) take(now int64) uint32 {
	if c.due.next() <= now {
		c.promote(now)
	}
	if c.counts[Ready] == 0 || c.pausedAll {
		return 0
	}
	i := c.fair.flows[0].head
	if !c.plain {
		class, k := c.fair.choose()
		i = c.fair.flows[k].head
		if c.fair.ready > 1 { // else pull starts everything anew
			c.fair.served(class, k, c.entries.at(i).tenant)
		}
	}
	e := c.entries.at(i)
	c.pull(i, e)

	c.queued, c.last = e.since, i
	c.deliveries++
	e.delivery = c.deliveries
	e.coming = noClass
	if x := c.extra(e); x != nil {
		x.taken, x.pending = x.pending, noteList{}
	}
	c.hold(i, e, now)
	return i
}

func (c *core[K]) hold(i uint32, e *entry[K], now int64) {
	c.turn(e, Held, now)
	if !c.observed {
		return // then there is no clock to read, and nobody asks for the oldest
	}
	c.heldSince += now
	e.prev, e.next = c.held.tail, 0
	if c.held.tail == 0 {
		c.held.head = i
	} else {
		c.entries.at(c.held.tail).next = i
	}
	c.held.tail = i
}

// promote makes the keys ready whose time has come, in the order of their due times.
func (c *core[K]) promote(now int64) {
	for c.due.next() <= now {
		at := c.due.next()
		x := c.extras.at(c.due.nodes[0].index)
		i := x.entry
		e := c.entries.at(i)
		switch at {
		case x.own:
			c.fireOwn(i, e, x, at)
		case x.outside:
			c.fireOutside(i, e, x, at)
		default:
			x.calm, x.latest = never, never
			c.setDue(e, x)
			if e.state != Held { // else its adds make it ready when it is settled
				c.owe(i, e, e.coming, at)
			}
		}
	}
}

func (c *core[K]) fireOwn(i uint32, e *entry[K], x *extra, at int64) {
	x.own = never
	c.setDue(e, x)
	if e.state == Parked {
		c.noteOwn(i, e, EventParkExpired, at)
		c.ready(i, e, e.class, at)
		return
	}
	event := EventAfter
	if e.is(flagBackoff) {
		event = cmp.Or(x.why, EventRetry)
	}
	c.noteOwn(i, e, event, at)
	c.owe(i, e, e.coming, at)
}

func (c *core[K]) fireOutside(i uint32, e *entry[K], x *extra, at int64) {
	class := x.outsideClass
	x.outside, x.outsideClass = never, noClass
	c.notes.move(&x.pending, &x.later)
	c.setDue(e, x)
	c.owe(i, e, class, at)
}
