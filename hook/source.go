// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

// Source is what package source reports.
type Source struct {
	// Dropped is called for an event that a filter dropped.
	Dropped func(source, filter string)
	// HandlerFailed is called when a handler or filter returned an error or panicked. The event is tried again.
	HandlerFailed func(source, object string, err error)
}
