// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"cmp"

	"github.com/setpoint-dev/setpoint/hook"
)

const sourceQueue = "queue"

// heldBy returns the entry that delivery holds (W9).
func (c *core[K]) heldBy(i uint32, delivery uint64) (*entry[K], bool) {
	if !c.entries.has(i) {
		return nil, false
	}
	e := c.entries.at(i)
	return e, e.state == Held && e.delivery == delivery
}

// verdict is how a held key is settled.
type verdict struct {
	outcome hook.QueueOutcome
	delay   int64  // Retry, After: how long to wait; Park: how long at most, zero without bound
	why     string // Park: the reason; Retry: the Event of the next delivery, if not EventRetry
	keep    bool   // Done: do not forget the failures (client-go's Done does not)
}

// event is that of the delivery after a Retry or After.
func (v *verdict) event() string { return cmp.Or(v.why, v.outcome.String()) }

// needsNow tells whether settling e as done needs the time. Reading the clock takes as long as all the rest.
func (c *core[K]) needsNow(e *entry[K]) bool {
	return c.due.next() != never || c.extra(e) != nil || e.flags&^flagOnly != flagUsed
}

// settle ends a delivery.
func (c *core[K]) settle(i uint32, e *entry[K], v verdict, now int64) {
	if c.due.next() <= now {
		c.promote(now)
	}
	if c.observed {
		c.heldSince -= e.since
		c.unlink(&c.held.head, &c.held.tail, e)
	}
	delete(c.adds, i)
	if v.outcome == hook.QueuePark || v.outcome == hook.QueueRelease {
		c.giveBack(i, e, v, now)
		return
	}
	timed := v.outcome == hook.QueueRetry || v.outcome == hook.QueueAfter
	x := c.extra(e)
	owed := e.is(flagOwed) || e.is(flagAdded) && (x == nil || x.calm == never)
	if timed {
		e.coming = urgentMost(e.coming, c.returning(e.class))
	}
	if e.is(flagOnly) {
		c.dropExtra(e)
	}
	if timed || e.extra != 0 {
		x = c.ext(i, e)
		c.notes.clear(&x.taken)
		switch {
		case v.outcome == hook.QueueRetry:
			x.attempts = more(x.attempts)
		case !v.keep:
			x.attempts = 0
		}
	}
	e.flags &^= flagWoken | flagBackoff | flagAdded
	switch {
	case owed:
		c.ready(i, e, e.coming, now)
	case timed && v.delay <= 0:
		c.noteOwn(i, e, v.event(), now)
		c.ready(i, e, e.coming, now)
	case timed:
		x.own, x.why = after(now, v.delay), v.why
		c.setDue(e, x)
		if v.outcome == hook.QueueRetry {
			e.flags |= flagBackoff
		}
		fallthrough
	default:
		c.rest(i, e, now)
	}
}

// giveBack settles a delivery that did not come to anything: its reasons, class and attempts stay.
func (c *core[K]) giveBack(i uint32, e *entry[K], v verdict, now int64) {
	class := urgentMost(e.class, e.coming)
	if v.outcome == hook.QueuePark {
		c.ext(i, e) // while its only reason is one of the present delivery
	}
	if x := c.extra(e); x != nil {
		taken := x.taken
		x.taken = noteList{}
		c.notes.move(&taken, &x.pending)
		x.pending = taken
	}
	switch {
	case c.shut:
		why := dropWaiting
		if v.outcome == hook.QueuePark {
			why = dropParked
		}
		c.dropAtEnd(i, e, why)
	case v.outcome == hook.QueuePark && !e.is(flagWoken):
		e.class, e.coming = class, noClass
		e.flags &^= flagOwed | flagAdded
		x := c.ext(i, e)
		x.why = v.why
		x.calm, x.latest = never, never
		if v.delay > 0 {
			x.own = after(now, v.delay)
		}
		c.setDue(e, x)
		c.turn(e, Parked, now)
	default:
		if v.outcome == hook.QueuePark {
			c.noteOwn(i, e, EventWoken, now)
		}
		c.ready(i, e, class, now)
	}
}

// mostAsked is how many adds of a held key Own is asked about, at most.
const mostAsked = 10_000

// keepAdd remembers an immediate add of a held key, for Own.
func (c *core[K]) keepAdd(i uint32, r *Reason) {
	adds := c.adds[i]
	if r == nil {
		r = &Reason{}
	}
	if n := len(adds); n > mostAsked || n > 0 && adds[n-1].equals(r) {
		return
	}
	c.adds[i] = append(adds, *r)
}

// disown takes back the immediate adds of a held key that is owed nothing else (W3).
func (c *core[K]) disown(e *entry[K]) {
	e.flags &^= flagAdded
	e.coming = noClass
	if x := c.extra(e); x != nil {
		c.notes.clear(&x.pending)
		x.calm, x.latest = never, never
		c.setDue(e, x)
	}
}

// shutDown drops what is neither ready nor held, and the due times of what is (W8).
func (c *core[K]) shutDown() {
	c.shut = true
	for i := uint32(1); i < c.entries.used; i++ {
		e := c.entries.at(i)
		if !e.is(flagUsed) {
			continue
		}
		switch e.state {
		case Waiting:
			c.dropAtEnd(i, e, dropWaiting)
		case Parked:
			c.dropAtEnd(i, e, dropParked)
		case Paused:
			c.dropAtEnd(i, e, dropPaused)
		case Ready, Held:
			if e.state == Ready && c.pausedAll {
				c.pull(i, e)
				c.dropAtEnd(i, e, dropPaused)
				continue
			}
			c.dropDelays(e)
		}
	}
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
