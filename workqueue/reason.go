// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"iter"
	"math"
	"time"

	"github.com/setpoint-dev/setpoint/internal/slab"
)

// Reason is why a key was added, for reports. The queue does not record the zero Reason. Its own
// reasons have the Source "queue"; their Event is a constant below or RetryOptions.Event. If a
// reason equals the newest one of its delivery, except for At, the queue only increments Repeats.
type Reason struct {
	// Source is the reporter, such as a source of the controller.
	Source string
	// Event is what happened, such as "Update".
	Event string
	// Object is the changed object, as namespace/name; not always the one that the key names.
	Object string
	// UID and ResourceVersion identify Object, as far as known. ResourceVersion is empty if the
	// reason stands for several changes of Object.
	UID             string
	ResourceVersion string
	// At is when the key was first added with this reason. Default: the time of the add. It is in
	// local time, without a monotonic reading, and at most 292 years from the queue's creation.
	At time.Time
	// Repeats is how often the reason was repeated in a row, at most 2147483647. The queue sets it.
	Repeats int `json:",omitzero"`
}

func (r *Reason) empty() bool {
	return r.Source == "" && r.Event == "" && r.Object == "" && r.UID == "" && r.ResourceVersion == ""
}

func (r *Reason) equals(s *Reason) bool {
	return r.ResourceVersion == s.ResourceVersion && r.Object == s.Object && r.UID == s.UID && r.Event == s.Event && r.Source == s.Source
}

const sourceQueue = "queue"

// Events of the queue's own reasons.
const (
	EventAdded = "Added" // added without a reason

	EventRetry       = "Retry"       // the delay of Retry is over
	EventAfter       = "After"       // the delay of After is over
	EventWoken       = "Woken"       // Wake ended a Park
	EventParkExpired = "ParkExpired" // a Park reached its time limit
	EventRequeueNow  = "RequeueNow"  // RequeueNow was called
)

// noteList holds the first reason, the newest few, and the number of those between. The notes after
// the first are a ring: in a full list, the next note replaces the oldest.
type noteList struct {
	first, newest uint32
	n, dropped    uint32
}

// note is a Reason in 72 bytes.
type note struct {
	object, uid, version string
	at                   int64 // counted from start
	cause                *cause
	next                 uint32
	repeats              uint32
}

// cause holds the fields in which few reasons differ.
type cause struct{ source, event string }

type notes struct {
	slab  slab.Slab[note]
	known map[cause]*cause
	last  *cause // most consecutive reasons share it
	start time.Time
	most  uint32 // notes in a list after its first
	off   bool
}

// mostCauses limits known. Notes may refer to other causes.
const mostCauses = 1024

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

func (s *notes) write(n *note, r *Reason, now int64) {
	n.object, n.uid, n.version, n.cause = r.Object, r.UID, r.ResourceVersion, s.causeOf(r)
	n.at, n.repeats = now, 0
	if !r.At.IsZero() {
		n.at = int64(r.At.Round(0).Sub(s.start))
	}
}

func (s *notes) read(n *note) Reason {
	return Reason{
		Source: n.cause.source, Event: n.cause.event, Object: n.object, UID: n.uid, ResourceVersion: n.version,
		At: s.start.Round(0).Add(time.Duration(n.at)), Repeats: int(n.repeats),
	}
}

// repeats counts a repetition and returns true if a reason equals newest, which may be 0.
func (s *notes) repeats(newest uint32, r *Reason) bool {
	if newest == 0 {
		return false
	}
	n := s.slab.At(newest)
	if n.version != r.ResourceVersion || n.object != r.Object || n.uid != r.UID || n.cause.event != r.Event || n.cause.source != r.Source {
		return false
	}
	if n.repeats < math.MaxInt32 {
		n.repeats++
	}
	return true
}

func (s *notes) add(l *noteList, r *Reason, now int64) {
	if l.n > s.most {
		l.newest = s.slab.At(l.newest).next
		l.dropped++
		s.write(s.slab.At(l.newest), r, now)
		return
	}
	i, n := s.slab.Take()
	s.link(l, i, n)
	s.write(n, r, now)
}

// link needs a list that has room.
func (s *notes) link(l *noteList, i uint32, n *note) {
	switch l.n {
	case 0:
		l.first = i
	case 1:
		n.next = i
	default:
		newest := s.slab.At(l.newest)
		n.next, newest.next = newest.next, i
	}
	l.newest = i
	l.n++
}

// dropSecond needs a full list of at least two notes.
func (s *notes) dropSecond(l *noteList) {
	newest := s.slab.At(l.newest)
	second := newest.next
	newest.next = s.slab.At(second).next
	s.slab.Put(second)
	l.n--
	l.dropped++
}

// all lets the loop body free a note or link it elsewhere.
func (s *notes) all(l noteList) iter.Seq2[uint32, *note] {
	return func(yield func(uint32, *note) bool) {
		if l.n == 0 {
			return
		}
		i, next := l.first, s.slab.At(l.newest).next
		for range l.n {
			if !yield(i, s.slab.At(i)) {
				return
			}
			i, next = next, s.slab.At(next).next
		}
	}
}

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
		s.slab.Put(i)
	}
	*l = noteList{}
}

func (s *notes) appendTo(out []Reason, l noteList) []Reason {
	for _, n := range s.all(l) {
		out = append(out, s.read(n))
	}
	return out
}
