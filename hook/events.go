// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

// EventSent reports that the API server has stored the events that one Event, or one patch of it,
// counts.
type EventSent struct {
	// Kind is the object's. Type is Normal or Warning. Reason is the event's.
	Kind, Type, Reason string
	// Events is the number of recorded events.
	Events int
}

// EventFailed reports a try that failed. The events are tried again, or EventDropped follows.
type EventFailed struct {
	// These are as in EventSent.
	Kind, Type, Reason string
	Err                error
}

// EventDropped reports events that are not sent. The goroutine that sends, or the one that records,
// sends it.
type EventDropped struct {
	// These are as in EventSent, but may be invalid.
	Kind, Type, Reason string
	// Why is the cause in words.
	Why    string
	Events int
}
