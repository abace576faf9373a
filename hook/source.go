// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

// Source is what package source reports.
type Source struct {
	// Dropped is called for what is not delivered: an event that a filter dropped (the reason is the filter's name), one that a
	// channel had no room for, a tick that came while the poll before it was still running.
	Dropped func(source, reason string)
	// HandlerFailed is called when a handler or filter returned an error or panicked. The event is tried again. object is the
	// object's namespace and name; empty where the event is not about an object.
	HandlerFailed func(source, object string, err error)
	// PollFailed is called when the poll of a ticker returned an error or panicked. It is tried again.
	PollFailed func(source string, err error)
}
