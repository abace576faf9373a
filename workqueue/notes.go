// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"iter"
	"time"
)

// noteList holds a key's reasons: the first and the newest few, and how many between them were dropped. Those after
// the first are a ring, in which the newest is followed by the oldest: the place of the next once the list is full.
type noteList struct {
	first, newest uint32
	n, dropped    uint32
}

type note struct {
	Reason
	at   int64 // when it was recorded
	next uint32
	held bool // from an add that can still be withdrawn
}

// notes is the store of all keys' reasons.
type notes struct {
	slab slab[note]
	most uint32 // how many of the newest a list keeps, at least 1
	off  bool
}

// repeats counts a reason instead of recording it, if it equals the newest one and can be withdrawn if that can.
func (s *notes) repeats(l *noteList, r *Reason, held bool) bool {
	if l.n == 0 {
		return false
	}
	n := s.slab.at(l.newest)
	if n.held != held || !n.equal(r) {
		return false
	}
	n.Repeats++
	return true
}

// record records a reason, unless it repeats the newest one.
func (s *notes) record(l *noteList, r *Reason, now int64, held bool) {
	if !s.repeats(l, r, held) {
		s.add(l, r, now, held)
	}
}

// add records a reason that does not repeat the newest one.
func (s *notes) add(l *noteList, r *Reason, now int64, held bool) {
	var n *note
	if l.n > s.most {
		l.newest = s.slab.at(l.newest).next
		l.dropped++
		n = s.slab.at(l.newest)
	} else {
		var i uint32
		i, n = s.slab.take()
		s.link(l, i, n)
	}
	n.Reason, n.at, n.held = *r, now, held
	n.Repeats = 0
}

// link appends a note to a list that has room for it.
func (s *notes) link(l *noteList, i uint32, n *note) {
	switch l.n {
	case 0:
		l.first = i
	case 1:
		n.next = i
	default:
		newest := s.slab.at(l.newest)
		n.next, newest.next = newest.next, i
	}
	l.newest = i
	l.n++
}

// dropSecond drops the oldest reason but the first of a full list, which has at least two, to make room for link.
func (s *notes) dropSecond(l *noteList) {
	newest := s.slab.at(l.newest)
	second := newest.next
	newest.next = s.slab.at(second).next
	s.slab.put(second)
	l.n--
	l.dropped++
}

// all yields the notes of a list, oldest first. They may be put back or linked elsewhere as they come.
func (s *notes) all(l noteList) iter.Seq2[uint32, *note] {
	return func(yield func(uint32, *note) bool) {
		if l.n == 0 {
			return
		}
		i, next := l.first, s.slab.at(l.newest).next
		for range l.n {
			if !yield(i, s.slab.at(i)) {
				return
			}
			i, next = next, s.slab.at(next).next
		}
	}
}

// move appends all of src to dst.
func (s *notes) move(dst, src *noteList) {
	for i, n := range s.all(*src) {
		if dst.n > s.most {
			s.dropSecond(dst)
		}
		s.link(dst, i, n)
	}
	dst.dropped += src.dropped
	*src = noteList{}
}

// withdraw takes out what came from adds that are withdrawn.
func (s *notes) withdraw(l *noteList) {
	left := noteList{dropped: l.dropped}
	for i, n := range s.all(*l) {
		if n.held {
			s.slab.put(i)
		} else {
			s.link(&left, i, n)
		}
	}
	*l = left
}

func (s *notes) clear(l *noteList) {
	for i := range s.all(*l) {
		s.slab.put(i)
	}
	*l = noteList{}
}

// settleHeld makes the reasons in l ones that can no longer be withdrawn.
func (s *notes) settleHeld(l *noteList) {
	for _, n := range s.all(*l) {
		n.held = false
	}
}

// copyOf returns the reasons in l; those without a time get the one at which they were recorded, counted from start.
func (s *notes) copyOf(l *noteList, start time.Time) []Reason {
	if l.n == 0 {
		return nil
	}
	out := make([]Reason, 0, l.n)
	for _, n := range s.all(*l) {
		r := n.Reason
		if r.At.IsZero() {
			r.At = start.Add(time.Duration(n.at))
		}
		out = append(out, r)
	}
	return out
}
