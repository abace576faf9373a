// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

// extra is what only some entries have. An entry whose only reason is all that it would have there, as most queued
// ones do, has the index of that note instead of one of an extra (flagOnly): while it is held, it is the reason of the
// present delivery, else of the next. So it changes from one to the other when the key is taken and when it is
// released, without being touched.
type extra struct {
	entry    uint32
	attempts uint32 // failures in a row
	outside  int64  // due time set from outside (W4), or never
	own      int64  // due time set by the key's own settle (W4), or never
	calm     int64  // MinInterval: when the adds so far make it ready, or never
	latest   int64  // MinInterval: calm is not put off beyond this

	why          string   // parked: why; in backoff: the Event of the delivery after it, if not EventRetry
	taken        noteList // of the delivery that holds the key
	pending      noteList // of the next delivery
	later        noteList // of the delivery at outside
	outsideClass uint8
}

// extra returns the extra of an entry, or nil if it has none.
func (c *core[K]) extra(e *entry[K]) *extra {
	if e.extra == 0 || e.is(flagOnly) {
		return nil
	}
	return c.extras.at(e.extra)
}

// only returns the reason that an entry has instead of an extra, if it does.
func (c *core[K]) only(e *entry[K]) noteList {
	if !e.is(flagOnly) {
		return noteList{}
	}
	return noteList{first: e.extra, newest: e.extra, n: 1}
}

// ext returns the extra of an entry, a new one if need be.
func (c *core[K]) ext(i uint32, e *entry[K]) *extra {
	if x := c.extra(e); x != nil {
		return x
	}
	only := c.only(e)
	e.flags &^= flagOnly
	var x *extra
	e.extra, x = c.extras.take()
	x.entry, x.outside, x.own, x.calm, x.latest = i, never, never, never, never
	if e.state == Held {
		x.taken = only
	} else {
		x.pending = only
	}
	return x
}

// dropExtra drops what an entry has besides itself.
func (c *core[K]) dropExtra(e *entry[K]) {
	if x := c.extra(e); x != nil {
		c.due.set(e.extra, never)
		c.notes.clear(&x.taken)
		c.notes.clear(&x.pending)
		c.notes.clear(&x.later)
		c.extras.put(e.extra)
	} else if e.is(flagOnly) {
		c.notes.slab.put(e.extra)
	}
	e.extra = 0
	e.flags &^= flagOnly
}

// setDue tells the heap when the entry is due next.
func (c *core[K]) setDue(e *entry[K], x *extra) {
	c.due.set(e.extra, min(x.outside, x.own, x.calm))
}

// attempts returns how often in a row a key has failed.
func (c *core[K]) attempts(e *entry[K]) uint32 {
	if x := c.extra(e); x != nil {
		return x.attempts
	}
	return 0
}

// note records a reason, if there is one, of the key's next delivery.
func (c *core[K]) note(i uint32, e *entry[K], r *Reason, now int64) {
	if r != nil {
		c.record(i, e, r, now)
	}
}

// noteOwn records a reason of the queue itself.
func (c *core[K]) noteOwn(i uint32, e *entry[K], event string, now int64) {
	c.record(i, e, &Reason{Source: sourceQueue, Event: event}, now)
}

func (c *core[K]) record(i uint32, e *entry[K], r *Reason, now int64) {
	switch {
	case c.notes.off:
	case e.extra == 0 && e.state != Held:
		e.extra = c.notes.single(r, now)
		e.flags |= flagOnly
	case !c.counted(e, r):
		c.notes.add(&c.ext(i, e).pending, r, now)
	}
}

// counted counts a reason of the key's next delivery if it repeats the newest one.
func (c *core[K]) counted(e *entry[K], r *Reason) bool {
	return c.notes.repeats(c.newest(e), r)
}

// newest returns the newest reason of the key's next delivery, or 0.
func (c *core[K]) newest(e *entry[K]) uint32 {
	switch x := c.extra(e); {
	case x != nil:
		return x.pending.newest
	case e.state == Held:
		return 0
	}
	return e.extra
}
