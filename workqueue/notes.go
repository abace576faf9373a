// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import "time"

// noteList holds a key's reasons: the first and the newest few, and how many between them were dropped.
type noteList struct {
	head, tail uint32
	n, dropped uint32
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
	n := s.slab.at(l.tail)
	if n.held != held || !n.equal(r) {
		return false
	}
	n.Repeats++
	return true
}

func (s *notes) add(l *noteList, r *Reason, now int64, held bool) {
	if s.repeats(l, r, held) {
		return
	}
	var i uint32
	var n *note
	if l.n > s.most {
		i = s.unlinkSecond(l)
		n = s.slab.at(i)
	} else {
		i, n = s.slab.take()
	}
	n.Reason, n.at, n.held = *r, now, held
	n.Repeats = 0
	s.link(l, i, n)
}

// link appends a note to a list that has room for it.
func (s *notes) link(l *noteList, i uint32, n *note) {
	n.next = 0
	if l.n == 0 {
		l.head = i
	} else {
		s.slab.at(l.tail).next = i
	}
	l.tail = i
	l.n++
}

// unlinkSecond drops the oldest reason but the first of a full list, which has at least two, and returns its place.
func (s *notes) unlinkSecond(l *noteList) uint32 {
	first := s.slab.at(l.head)
	second := first.next
	first.next = s.slab.at(second).next
	if l.tail == second {
		l.tail = l.head
	}
	l.n--
	l.dropped++
	return second
}

// move appends all of src to dst.
func (s *notes) move(dst, src *noteList) {
	dropped := src.dropped
	for i := src.head; i != 0; {
		n := s.slab.at(i)
		next := n.next
		if dst.n > s.most {
			s.slab.put(s.unlinkSecond(dst))
		}
		s.link(dst, i, n)
		i = next
	}
	*src = noteList{}
	dst.dropped += dropped
}

// withdraw takes out what came from adds that are withdrawn.
func (s *notes) withdraw(l *noteList) {
	old := *l
	*l = noteList{dropped: old.dropped}
	for i := old.head; i != 0; {
		n := s.slab.at(i)
		next := n.next
		if n.held {
			s.slab.put(i)
		} else {
			s.link(l, i, n)
		}
		i = next
	}
}

func (s *notes) clear(l *noteList) {
	for i := l.head; i != 0; {
		next := s.slab.at(i).next
		s.slab.put(i)
		i = next
	}
	*l = noteList{}
}

// settleHeld makes the reasons in l ones that can no longer be withdrawn.
func (s *notes) settleHeld(l *noteList) {
	for i := l.head; i != 0; {
		n := s.slab.at(i)
		n.held = false
		i = n.next
	}
}

// copyOf returns the reasons in l; those without a time get the one at which they were recorded, counted from start.
func (s *notes) copyOf(l *noteList, start time.Time) []Reason {
	if l.n == 0 {
		return nil
	}
	out := make([]Reason, 0, l.n)
	for i := l.head; i != 0; {
		n := s.slab.at(i)
		r := n.Reason
		if r.At.IsZero() {
			r.At = start.Add(time.Duration(n.at))
		}
		out = append(out, r)
		i = n.next
	}
	return out
}
