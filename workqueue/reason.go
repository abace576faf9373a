// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"iter"
	"math"
	"time"
)

// Reason describes why a key was added. It is for people and for reports: the queue itself never
// looks into it. The zero Reason is not recorded. The queue records reasons of its own, with Source
// "queue" and one of the Event constants or RetryOptions.Event. A reason that differs from the newest
// one of the same delivery by At alone is counted in Repeats of that one.
type Reason struct {
	// Source names what reported it, such as a source of the controller.
	Source string
	// Event is what happened, such as "Update".
	Event string
	// Object is what it happened to, as namespace/name; not necessarily the object that the key names.
	Object string
	// UID and ResourceVersion are those of Object, as far as known.
	UID             string
	ResourceVersion string
	// At is when the key was first added with this reason. The queue sets it where it is zero. It comes
	// back in the local time zone, without a monotonic clock reading, and cut to within 292 years of
	// when the queue was made.
	At time.Time
	// Repeats is how many more times in a row it was the reason, counted up to 2147483647. The queue sets it.
	Repeats int `json:",omitzero"`
}

func (r *Reason) empty() bool {
	return r.Source == "" && r.Event == "" && r.Object == "" && r.UID == "" && r.ResourceVersion == ""
}

// equals reports whether r and s differ by no more than At and Repeats.
func (r *Reason) equals(s *Reason) bool {
	return r.ResourceVersion == s.ResourceVersion && r.Object == s.Object && r.UID == s.UID && r.Event == s.Event && r.Source == s.Source
}

// sourceQueue is the Source of the reasons that the queue gives itself.
const sourceQueue = "queue"

// Events of the reasons that the queue gives itself.
const (
	EventAdded = "Added" // it was added without a reason

	EventRetry       = "Retry"       // the delay of Retry is over
	EventAfter       = "After"       // the delay of After is over
	EventWoken       = "Woken"       // Wake ended a Park
	EventParkExpired = "ParkExpired" // a Park lasted as long as it was allowed to
	EventRequeueNow  = "RequeueNow"  // RequeueNow was called
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
	at                   int64 // Reason.At, counted from start
	cause                *cause
	next                 uint32
	repeats              uint32
}

// cause is what few reasons differ in.
type cause struct{ source, event string }

// notes is the store of all keys' reasons.
type notes struct {
	slab  slab[note]
	known map[cause]*cause
	last  *cause    // the one used last: most reasons in a row have the same
	start time.Time // what times count from
	most  uint32    // how many of the newest a list keeps
	off   bool
}

// mostCauses is how many causes are known. Notes may refer to others.
const mostCauses = 1024

// causeOf returns the cause of a reason, the same for most notes.
func (s *notes) causeOf(r *Reason) *cause {
	if s.last != nil && s.last.event == r.Event && s.last.source == r.Source {
		return s.last
	}
	c := s.known[cause{r.Source, r.Event}]
	if c == nil {
		if len(s.known) >= mostCauses {
			clear(s.known)
		}
		c = &cause{r.Source, r.Event}
		s.known[*c] = c
	}
	s.last = c
	return c
}

// write makes n the note of a reason.
func (s *notes) write(n *note, r *Reason, now int64) {
	n.object, n.uid, n.version, n.cause = r.Object, r.UID, r.ResourceVersion, s.causeOf(r)
	n.at, n.repeats = now, 0
	if !r.At.IsZero() {
		n.at = int64(r.At.Round(0).Sub(s.start))
	}
}

// read returns the reason that n is the note of.
func (s *notes) read(n *note) Reason {
	return Reason{
		Source: n.cause.source, Event: n.cause.event, Object: n.object, UID: n.uid, ResourceVersion: n.version,
		At: s.start.Round(0).Add(time.Duration(n.at)), Repeats: int(n.repeats),
	}
}

// repeats counts a reason instead of recording it, if it equals the newest one of its list, which may be none.
func (s *notes) repeats(newest uint32, r *Reason) bool {
	if newest == 0 {
		return false
	}
	n := s.slab.at(newest)
	if n.version != r.ResourceVersion || n.object != r.Object || n.uid != r.UID || n.cause.event != r.Event || n.cause.source != r.Source {
		return false
	}
	if n.repeats < math.MaxInt32 {
		n.repeats++
	}
	return true
}

// single records a reason that is in no list.
func (s *notes) single(r *Reason, now int64) uint32 {
	i, n := s.slab.take()
	s.write(n, r, now)
	return i
}

// add records a reason that does not repeat the newest one.
func (s *notes) add(l *noteList, r *Reason, now int64) {
	if l.n > s.most {
		l.newest = s.slab.at(l.newest).next
		l.dropped++
		s.write(s.slab.at(l.newest), r, now)
		return
	}
	i, n := s.slab.take()
	s.link(l, i, n)
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
func (s *notes) copyOf(l noteList) []Reason {
	var out []Reason
	for _, n := range s.all(l) {
		out = append(out, s.read(n))
	}
	return out
}
