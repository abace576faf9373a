// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

// Events observes package events. The goroutine that sends calls Sent and Failed. Dropped may also
// be called by the one that records the event.
type Events struct {
	// Sent is called when the API server has stored events.
	Sent func(EventSent)
	// Failed is called for each try that failed. The events are tried again, or Dropped follows.
	Failed  func(EventFailed)
	Dropped func(EventDropped)
}

// EventSent describes the events that one Event or one patch of it counts.
type EventSent struct {
	// Kind is the object's. Type is Normal or Warning. Reason is the event's.
	Kind, Type, Reason string
	// Events is the number of recorded events.
	Events int
}

// EventFailed describes a try that failed.
type EventFailed struct {
	// These are as in EventSent.
	Kind, Type, Reason string
	Err                error
}

// EventDropped describes events that are not sent.
type EventDropped struct {
	// These are as in EventSent, but may be invalid.
	Kind, Type, Reason string
	// Why is the cause in words.
	Why    string
	Events int
}
