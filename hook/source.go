// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// Source observes package source.
type Source struct {
	// Started is called when Run begins, Stopped before it returns.
	Started func(SourceRun)
	Stopped func(SourceRun)
	// Dropped is called for an event that a predicate or a channel drops, or with the wrong Go
	// type. It is also called for a tick during a poll.
	Dropped func(SourceDropped)
	// HandlerFailed is called when a handler or predicate returns an error or panics. The event is
	// retried.
	HandlerFailed func(SourceFailure)
	// HandlerBlocked is called once for a handler or predicate that does not return for 5 to 10
	// seconds. Until then, the source delivers no further event.
	HandlerBlocked func(SourceBlocked)
	// PollFailed is called when the poll of a ticker returns an error or panics. It is retried.
	PollFailed func(SourceFailure)
}

// SourceRun names a source that a controller runs.
type SourceRun struct {
	// Controller is empty if no controller runs the source. A controller may have several sources
	// with the same name.
	Controller, Source string
}

// SourceDropped describes a dropped event.
type SourceDropped struct {
	Controller, Source string
	// Reason is the name of the predicate, or another reason in words.
	Reason string
}

// SourceFailure describes a failure that is retried.
type SourceFailure struct {
	Controller, Source string
	// Object is the object's namespace and name, or empty without an object.
	Object string
	Err    error
}

// SourceBlocked describes a handler or a predicate that blocks.
type SourceBlocked struct {
	Controller, Source string
	// After is the least time for which it has blocked.
	After time.Duration
}
