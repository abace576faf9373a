// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

// merges tells whether an add of the entry changes nothing: it is ready, in no lower class (W2).
func (c *core[K]) merges(i uint32, class uint8) bool {
	if i == 0 {
		return false
	}
	e := c.entries.at(i)
	return e.state == Ready && e.class >= class && !c.shut
}

// addNeedsNow tells whether an add of the entry needs the time. Reading the clock takes as long as all the rest.
func (c *core[K]) addNeedsNow(i uint32, r *Reason) bool {
	if c.due.next() != never || c.minInterval > 0 {
		return true
	}
	if !c.stamped {
		return false
	}
	if i == 0 || r != nil && !c.notes.off {
		return true
	}
	s := c.entries.at(i).state
	return s == Idle || s == Waiting
}

// add adds a key, whose entry is i, or none, at once: it is delivered once more (W2, W3).
func (c *core[K]) add(w *who[K], i uint32, class uint8, r *Reason, now int64) {
	if c.shut {
		c.drop(dropLate)
		return
	}
	if c.due.next() <= now {
		c.promote(now)
	}
	if i == 0 {
		i = c.create(w, now)
	}
	e := c.entries.at(i)
	c.note(i, e, r, now)
	switch {
	case e.state == Held && (c.asks || c.minInterval > 0):
		if c.asks {
			c.keepAdd(i, r)
		}
		e.flags |= flagAdded
		e.coming = urgentMost(e.coming, class)
		c.debounce(i, e, now)
	case c.minInterval > 0 && (e.state == Idle || e.state == Waiting):
		e.coming = urgentMost(e.coming, class)
		c.debounce(i, e, now)
		if e.state == Idle {
			c.turn(e, Waiting, now)
		}
	default:
		c.owe(i, e, class, now)
	}
}

// debounce puts off the delivery that an add asks for by MinInterval, within MaxWait.
func (c *core[K]) debounce(i uint32, e *entry[K], now int64) {
	if c.minInterval == 0 {
		return
	}
	x := c.ext(i, e)
	if x.latest == never {
		x.latest = after(now, c.maxWait)
	}
	x.calm = min(after(now, c.minInterval), x.latest)
	c.setDue(e, x)
}

// addAfter gives a key a due time from outside; of several the earliest wins (W4).
func (c *core[K]) addAfter(w *who[K], class uint8, r *Reason, delay, now int64) {
	if c.shut {
		c.drop(dropLate)
		return
	}
	i, e := c.enter(w, now)
	x := c.ext(i, e)
	if x.outside == never {
		x.outsideClass = noClass
	}
	x.outsideClass = urgentMost(x.outsideClass, class)
	x.outside = min(x.outside, after(now, delay))
	if r != nil && !c.notes.off {
		c.notes.record(&x.later, r, now)
	}
	c.setDue(e, x)
	if e.state == Idle {
		c.turn(e, Waiting, now)
	}
}

// after returns now+d, but before never.
func after(now, d int64) int64 {
	return now + min(d, never-1-now)
}

// inBackoff returns the number of the delivery after which a key waits in backoff, be it paused meanwhile.
func (c *core[K]) inBackoff(w *who[K]) (uint64, bool) {
	i := c.find(w.key, w.hash)
	if i == 0 {
		return 0, false
	}
	e := c.entries.at(i)
	return e.delivery, e.is(flagBackoff) && (e.state == Waiting || e.state == Paused && !e.is(flagOwed))
}

// fail counts one more failure of a key, which need not be held, and returns how many it has now,
// and the lane for a retry.
func (c *core[K]) fail(w *who[K], now int64) (n int, lane uint8) {
	if c.shut {
		c.drop(dropLate)
		return 0, c.normal
	}
	i, e := c.enter(w, now)
	x := c.ext(i, e)
	x.attempts = more(x.attempts)
	lane = c.normal
	if e.state == Held {
		lane = e.class
	}
	return int(x.attempts), c.returning(lane)
}

// more returns n+1, or n if there is no such number.
func more(n uint32) uint32 { return n + min(1, ^n) }

// clear forgets the failures of the key of an entry.
func (c *core[K]) clear(i uint32) {
	e := c.entries.at(i)
	if x := c.extra(e); x != nil {
		x.attempts = 0
	}
	if e.state == Idle {
		c.forget(i, e)
	}
}

// wake ends a Park; a key that is held is not parked by the Park to come.
func (c *core[K]) wake(w *who[K], now int64) bool {
	i := c.find(w.key, w.hash)
	if i == 0 {
		return false
	}
	e := c.entries.at(i)
	switch e.state {
	case Parked:
		c.noteOwn(i, e, EventWoken, now)
		c.ready(i, e, e.class, now)
		return true
	case Held:
		e.flags |= flagWoken
		return true
	}
	return false
}

// requeue makes a key ready whatever it waits for; one that is held is delivered once more.
func (c *core[K]) requeue(w *who[K], r *Reason, now int64) {
	if c.shut {
		c.drop(dropLate)
		return
	}
	if c.due.next() <= now {
		c.promote(now)
	}
	i, e := c.enter(w, now)
	if r != nil {
		c.record(i, e, r, now)
	}
	if e.state == Parked {
		c.ready(i, e, urgentMost(e.class, c.urgent), now)
		return
	}
	c.owe(i, e, c.urgent, now)
	if e.state == Held {
		e.flags |= flagWoken
	}
}

// pause keeps a key from being delivered until it is resumed; what it is owed meanwhile is kept.
func (c *core[K]) pause(w *who[K], now int64) {
	if c.shut {
		return
	}
	if c.due.next() <= now {
		c.promote(now)
	}
	i, e := c.enter(w, now)
	e.flags |= flagPaused
	switch e.state {
	case Ready:
		c.pull(i, e)
		e.coming = e.class
		e.flags |= flagOwed
		c.turn(e, Paused, now)
	case Idle, Waiting:
		c.turn(e, Paused, now)
	}
}

func (c *core[K]) resume(w *who[K], now int64) {
	if c.due.next() <= now {
		c.promote(now)
	}
	i := c.find(w.key, w.hash)
	if i == 0 {
		return
	}
	e := c.entries.at(i)
	e.flags &^= flagPaused
	if e.state != Paused {
		return
	}
	if e.is(flagOwed) {
		c.ready(i, e, e.coming, now)
		return
	}
	c.rest(i, e, now)
}
