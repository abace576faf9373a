// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import "time"

// Reason says why a key was added. It is for people and for reports: the queue itself never looks into it, except
// that it records nothing for the zero Reason. The queue records reasons of its own, with Source "queue" and one of
// the Event constants, or Again.Event, for a delivery that nobody else asked for. A reason that differs from the newest one of the
// same delivery by At alone is not recorded but counted, in Repeats of that one.
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
	// At is when the key was first added with this reason. The queue sets it where it is zero. One that is set
	// comes back as the same instant, but in the local time zone, without a monotonic clock reading, and cut to
	// within 292 years of when the queue was made.
	At time.Time
	// Repeats is how many more times in a row it was the reason, counted up to 2147483647. The queue sets it.
	Repeats int `json:",omitzero"`
}

// equals reports whether r and s differ by no more than At and Repeats.
func (r *Reason) equals(s *Reason) bool {
	return r.ResourceVersion == s.ResourceVersion && r.Object == s.Object && r.UID == s.UID && r.Event == s.Event && r.Source == s.Source
}

// Events of the reasons that the queue gives itself.
const (
	EventAdded = "Added" // it was added, and nobody said why

	EventRetry       = "Retry"       // the delay of Retry is over
	EventAfter       = "After"       // the delay of After is over
	EventWoken       = "Woken"       // Wake ended a Park
	EventParkExpired = "ParkExpired" // a Park lasted as long as it was allowed to
	EventRequeueNow  = "RequeueNow"  // RequeueNow was called
)

// How says how to add a key. The zero How adds it at once, in class Normal, without a reason.
type How struct {
	// Class is how urgent it is. Default Normal. A class that is not configured counts as the next lower one that
	// is, or else as the lowest.
	Class Class
	// After is how long to wait first; zero or less: not at all.
	After time.Duration
	// Reason says why. The zero Reason is not recorded; a delivery that has no other is told as EventAdded.
	Reason Reason
}

// added is the reason of a delivery that has none, and became ready at a time.
func (q *Queue[K]) added(at int64) Reason {
	r := Reason{Source: sourceQueue, Event: EventAdded}
	if at != 0 {
		r.At = q.start.Add(time.Duration(at))
	}
	return r
}
