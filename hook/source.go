// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// SourceStarted reports that Run of a source begins.
type SourceStarted struct {
	// Controller is empty if no controller runs the source. A controller may have several sources
	// with the same name.
	Controller, Source string
}

// SourceStopped reports that Run of a source is about to return.
type SourceStopped struct{ Controller, Source string }

// SourceDropped reports an event that a predicate or a channel drops, or with the wrong Go type, or
// a tick during a poll.
type SourceDropped struct {
	Controller, Source string
	// Reason is the name of the predicate, or another reason in words.
	Reason string
}

// HandlerFailed reports a handler or predicate that returned an error or panicked. The event is
// retried.
type HandlerFailed struct {
	Controller, Source string
	// Object is the object's namespace and name, or empty without an object.
	Object string
	Err    error
}

// HandlerBlocked reports once a handler or predicate that does not return for 5 to 10 seconds.
// Until it does, the source delivers no further event.
type HandlerBlocked struct {
	Controller, Source string
	// After is the least time for which it has blocked.
	After time.Duration
}

// PollFailed reports that the poll of a ticker returned an error or panicked. It is retried.
type PollFailed struct {
	Controller, Source string
	Err                error
}
