// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"iter"
	"math"
	"time"
)

// noteList holds a key's reasons: the first and the newest few, and how many between them were dropped. Those after
// the first are a ring, in which the newest is followed by the oldest: the place of the next once the list is full.
type noteList struct {
	first, newest uint32
	n, dropped    uint32
}

// note is a Reason in 72 bytes.
type note struct {
	object, uid, version string
	at                   int64 // when it was recorded, or, if it is given, Reason.At; both counted from start
	next                 uint32
	cause                uint32
	repeats              uint32
	given                bool // the host has set Reason.At
}

// notes is the store of all keys' reasons.
type notes struct {
	slab   slab[note]
	causes causes
	start  time.Time // what times count from
	most   uint32    // how many of the newest a list keeps, at least 1
	off    bool
}

func newNotes(most int, start time.Time) notes {
	return notes{causes: newCauses(), start: start, most: uint32(max(most, 0)), off: most < 0}
}

// write makes n the note of a reason.
func (s *notes) write(n *note, r *Reason, now int64) {
	n.object, n.uid, n.version, n.cause = r.Object, r.UID, r.ResourceVersion, s.causeOf(r)
	n.at, n.repeats, n.given = now, 0, false
	if !r.At.IsZero() {
		n.at, n.given = int64(r.At.Round(0).Sub(s.start)), true
	}
}

// read returns the reason that n is the note of.
func (s *notes) read(n *note) Reason {
	c := &s.causes.byID[n.cause]
	r := Reason{
		Source: c.source, Event: c.event, Object: n.object, UID: n.uid, ResourceVersion: n.version,
		At: s.start, Repeats: int(n.repeats),
	}
	if n.given {
		r.At = r.At.Round(0) // it was counted by the wall clock
	}
	r.At = r.At.Add(time.Duration(n.at))
	return r
}

// same tells whether a reason differs from n's by no more than At and Repeats. What differs most often comes first.
func (s *notes) same(n *note, r *Reason) bool {
	return n.version == r.ResourceVersion && n.object == r.Object && n.uid == r.UID && s.causes.byID[n.cause].of(r)
}

// repeats counts a reason instead of recording it, if it equals the newest one of its list, which may be none.
func (s *notes) repeats(newest uint32, r *Reason) bool {
	if newest == 0 {
		return false
	}
	n := s.slab.at(newest)
	if !s.same(n, r) {
		return false
	}
	if n.repeats < math.MaxInt32 {
		n.repeats++
	}
	return true
}

// record records a reason, unless it repeats the newest one.
func (s *notes) record(l *noteList, r *Reason, now int64) {
	if !s.repeats(l.newest, r) {
		s.add(l, r, now)
	}
}

// single records a reason that is in no list.
func (s *notes) single(r *Reason, now int64) uint32 {
	i, n := s.slab.take()
	s.write(n, r, now)
	return i
}

// add records a reason that does not repeat the newest one.
func (s *notes) add(l *noteList, r *Reason, now int64) {
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
	s.write(n, r, now)
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

func (s *notes) clear(l *noteList) {
	for i := range s.all(*l) {
		s.slab.put(i)
	}
	*l = noteList{}
}

// copyOf returns the reasons in l.
func (s *notes) copyOf(l *noteList) []Reason {
	if l.n == 0 {
		return nil
	}
	out := make([]Reason, 0, l.n)
	for _, n := range s.all(*l) {
		out = append(out, s.read(n))
	}
	return out
}

// reset gives all memory back; no list refers to a note any more.
func (s *notes) reset() {
	s.slab.reset()
	s.causes = newCauses()
}
