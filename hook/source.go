// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// Source is what package source reports.
type Source struct {
	// Started is called when a controller begins to run a source.
	Started func(SourceRun)
	// Stopped is called when the source has returned.
	Stopped func(SourceRun)
	// Dropped is called for what is not delivered: an event that a predicate dropped, one that a channel had no room for, a tick
	// that came while the poll before it was still running.
	Dropped func(SourceDropped)
	// HandlerFailed is called when a handler or predicate returned an error or panicked. The event is tried again.
	HandlerFailed func(SourceFailure)
	// HandlerBlocked is called once for a handler or predicate that does not return for some seconds:
	// no further event of the source is delivered meanwhile.
	HandlerBlocked func(SourceBlocked)
	// PollFailed is called when the poll of a ticker returned an error or panicked. It is tried again.
	PollFailed func(SourceFailure)
}

// SourceRun is a source that a controller runs.
type SourceRun struct {
	// Controller is the controller's name; empty if the source is run by something else. Source is the source's; a controller may
	// have several of one name.
	Controller, Source string
}

// SourceDropped is something that is not delivered.
type SourceDropped struct {
	// Controller and Source are as in SourceRun.
	Controller, Source string
	// Reason is the predicate's name, or says in words why.
	Reason string
}

// SourceFailure is something that is tried again.
type SourceFailure struct {
	// Controller and Source are as in SourceRun.
	Controller, Source string
	// Object is the object's namespace and name; empty where it is not about an object.
	Object string
	// Err is what went wrong.
	Err error
}

// SourceBlocked is a handler or a predicate that blocks.
type SourceBlocked struct {
	// Controller and Source are as in SourceRun.
	Controller, Source string
	// After is for how long it has blocked at least.
	After time.Duration
	// Where is the function that the source has called, with file and line, and Stack that of its
	// goroutine. Both are empty if the call has ended meanwhile. If handlers of several sources run
	// at this moment, they may be another source's.
	Where, Stack string
}
