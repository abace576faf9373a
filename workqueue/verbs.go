// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"cmp"

	"github.com/setpoint-dev/setpoint/hook"
)

// merges reports whether an add of an entry changes nothing but its reasons.
func (c *core[K]) merges(i uint32, class uint8) bool {
	if i == 0 {
		return false
	}
	e := c.entries.At(i)
	return e.state == Ready && e.class >= class && !c.shut
}

func (c *core[K]) add(w *who[K], class uint8, r *Reason) {
	if c.shut {
		c.drop(dropLate)
		return
	}
	c.promote()
	i, e := c.enter(w)
	c.record(i, e, r)
	switch {
	case e.state == Held && (c.asks || c.minInterval > 0):
		if c.asks {
			c.keepAdd(i, r)
		}
		e.flags |= flagAdded
		e.coming = urgentMost(e.coming, class)
		c.debounce(i, e)
	case c.minInterval > 0 && (e.state == Idle || e.state == Waiting):
		e.coming = urgentMost(e.coming, class)
		c.debounce(i, e)
		if e.state == Idle {
			c.turn(e, Waiting)
		}
	default:
		c.owe(i, e, class)
	}
}

const mostAsked = 10_000

func (c *core[K]) keepAdd(i uint32, r *Reason) {
	adds := c.adds[i]
	if n := len(adds); n > mostAsked || n > 0 && adds[n-1].equals(r) {
		return
	}
	c.adds[i] = append(adds, *r)
}

func (c *core[K]) debounce(i uint32, e *entry[K]) {
	if c.minInterval == 0 {
		return
	}
	x := c.ext(i, e)
	if x.latest == never {
		x.latest = after(c.now(), c.maxWait)
	}
	x.calm = min(after(c.now(), c.minInterval), x.latest)
	c.setDue(e, x)
}

func (c *core[K]) addAfter(w *who[K], class uint8, r *Reason, delay int64) {
	if c.shut {
		c.drop(dropLate)
		return
	}
	i, e := c.enter(w)
	x := c.ext(i, e)
	if x.outside == never {
		x.outsideClass = noClass
	}
	x.outsideClass = urgentMost(x.outsideClass, class)
	x.outside = min(x.outside, after(c.now(), delay))
	if !c.notes.off && !r.empty() && !c.notes.repeats(x.later.newest, r) {
		c.notes.add(&x.later, r, c.now())
	}
	c.setDue(e, x)
	if e.state == Idle {
		c.turn(e, Waiting)
	}
}

// hasten delivers a resting key within a time, unless that is 0 or the queue is shut down.
func (c *core[K]) hasten(w *who[K], within int64, r *Reason) {
	if within <= 0 || c.shut {
		return
	}
	i, e := c.enter(w)
	x := c.ext(i, e)
	c.record(i, e, r)
	x.own = min(x.own, after(c.now(), within))
	c.setDue(e, x)
	if e.state == Idle {
		c.turn(e, Waiting)
	}
}

func after(now, d int64) int64 { return now + min(d, never-1-now) }

// inBackoff returns a key's last delivery, and whether the key waits after Retry or is given up,
// paused or not.
func (c *core[K]) inBackoff(w *who[K]) (uint64, bool) {
	i := c.find(w.key, w.hash)
	if i == 0 {
		return 0, false
	}
	e := c.entries.At(i)
	resting := e.state == Waiting || e.state == Idle || e.state == Paused && !e.is(flagOwed)
	return e.delivery, resting && e.flags&(flagBackoff|flagGivenUp) != 0
}

func (c *core[K]) fail(w *who[K]) (n int, lane uint8) {
	if c.shut {
		c.drop(dropLate)
		return 0, c.normal
	}
	i, e := c.enter(w)
	x := c.ext(i, e)
	x.attempts = more(x.attempts)
	lane = c.normal
	if e.state == Held {
		lane = e.class
	}
	return int(x.attempts), c.returning(lane)
}

func more(n uint32) uint32 { return n + min(1, ^n) }

func (c *core[K]) clear(i uint32) {
	e := c.entries.At(i)
	if x := c.extra(e); x != nil {
		x.attempts = 0
	}
	if e.state == Idle {
		c.forget(i, e)
	}
}

func (c *core[K]) wake(w *who[K]) bool {
	i := c.find(w.key, w.hash)
	if i == 0 {
		return false
	}
	e := c.entries.At(i)
	switch e.state {
	case Parked:
		c.record(i, e, &Reason{Source: sourceQueue, Event: EventWoken})
		c.ready(i, e, e.class)
		return true
	case Held:
		e.flags |= flagWoken
		return true
	}
	return false
}

func (c *core[K]) requeue(w *who[K], r *Reason) {
	if c.shut {
		c.drop(dropLate)
		return
	}
	c.promote()
	i, e := c.enter(w)
	c.record(i, e, r)
	if e.state == Parked {
		c.ready(i, e, urgentMost(e.class, c.urgent))
		return
	}
	c.owe(i, e, c.urgent)
	if e.state == Held {
		e.flags |= flagWoken
	}
}

func (c *core[K]) pause(w *who[K]) {
	if c.shut {
		return
	}
	c.promote()
	_, e := c.enter(w)
	e.flags |= flagPaused
	switch e.state {
	case Ready:
		c.pull(e)
		e.coming = e.class
		e.flags |= flagOwed
		c.turn(e, Paused)
	case Idle, Waiting:
		c.turn(e, Paused)
	}
}

func (c *core[K]) resume(w *who[K]) {
	c.promote()
	i := c.find(w.key, w.hash)
	if i == 0 {
		return
	}
	e := c.entries.At(i)
	e.flags &^= flagPaused
	switch {
	case e.state != Paused:
	case e.is(flagOwed):
		c.ready(i, e, e.coming)
	default:
		c.rest(i, e)
	}
}

type verdict struct {
	outcome hook.QueueOutcome
	delay   int64   // Park: the time limit, or zero
	why     string  // Park: the reason; Retry: RetryOptions.Event
	class   uint8   // lane for adds of the next delivery; noClass: as taken
	keep    bool    // keep the number of failures, as client-go's Done does
	soon    int64   // positive: the smallest time within which Own wants the key
	because *Reason // of the add
}

func (v verdict) failed() bool {
	return v.outcome == hook.QueueRetry || v.outcome == hook.QueueGiveUp
}

func (c *core[K]) settle(i uint32, e *entry[K], v verdict) {
	c.promote()
	if c.observed {
		c.heldSince -= e.since
		c.unlink(&c.held, e)
	}
	delete(c.adds, i)
	if v.outcome == hook.QueuePark || v.outcome == hook.QueueRelease {
		c.giveBack(i, e, v)
		return
	}
	timed := v.outcome == hook.QueueRetry || v.outcome == hook.QueueAfter || v.soon > 0
	x := c.extra(e)
	owed := e.is(flagOwed) || e.is(flagAdded) && (x == nil || x.calm == never)
	if timed {
		class := e.class
		if v.class != noClass {
			class = v.class
		}
		e.coming = urgentMost(e.coming, c.returning(class))
	}
	c.count(i, e, v, timed)
	e.flags &^= flagWoken | flagBackoff | flagAdded
	if v.outcome == hook.QueueGiveUp {
		e.flags |= flagGivenUp
	}
	switch {
	case owed:
		c.ready(i, e, e.coming)
	case timed && v.delay <= 0:
		c.record(i, e, &Reason{Source: sourceQueue, Event: cmp.Or(v.why, string(v.outcome))})
		c.ready(i, e, e.coming)
	case timed:
		x = c.extra(e)
		x.own, x.why = after(c.now(), v.delay), v.why
		c.setDue(e, x)
		if v.soon > 0 {
			c.record(i, e, v.because)
		}
		if v.outcome == hook.QueueRetry {
			e.flags |= flagBackoff
		}
		fallthrough
	default:
		c.rest(i, e)
	}
}

// count ensures that a timed key has an extra.
func (c *core[K]) count(i uint32, e *entry[K], v verdict, timed bool) {
	if e.is(flagOnly) {
		c.dropExtra(e)
	}
	if !timed && !v.failed() && e.extra == 0 {
		return
	}
	x := c.ext(i, e)
	c.notes.clear(&x.taken)
	switch {
	case v.keep:
	case v.failed():
		x.attempts = more(x.attempts)
	default:
		x.attempts = 0
	}
}

// giveBack settles a delivery as unfinished: it keeps its reasons, class and attempts.
func (c *core[K]) giveBack(i uint32, e *entry[K], v verdict) {
	class := urgentMost(e.class, e.coming)
	if v.outcome == hook.QueuePark {
		c.ext(i, e) // before the state changes: a single note is a reason of this delivery
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
			x.own = after(c.now(), v.delay)
		}
		c.setDue(e, x)
		c.turn(e, Parked)
	default:
		if v.outcome == hook.QueuePark {
			c.record(i, e, &Reason{Source: sourceQueue, Event: EventWoken})
		}
		c.ready(i, e, class)
	}
}

func (c *core[K]) disown(e *entry[K]) {
	e.flags &^= flagAdded
	e.coming = noClass
	if x := c.extra(e); x != nil {
		c.notes.clear(&x.pending)
		x.calm, x.latest = never, never
		c.setDue(e, x)
	}
}
