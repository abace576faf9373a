// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import "github.com/setpoint-dev/setpoint/cache/internal/coalesce"

// Waiting returns the number of events for which the handler has not been called yet: at most one
// for each object if the handler is in one call for a second or more.
func (s *Subscription) Waiting() (events int) {
	for _, r := range s.now() {
		if l, ok := r.ResourceEventHandlerRegistration.(*coalesce.Registration); ok {
			events += l.Waiting()
		}
	}
	return events
}

// OnMerged implements coalesce.Merged.
func (r *registration) OnMerged(before, after any, initial bool) {
	m, wants := r.of.handler.(coalesce.Merged)
	switch {
	case !wants && before == nil:
		r.OnAdd(after, initial)
	case !wants:
		r.OnUpdate(before, after)
	default:
		m.OnMerged(before, after, initial || before == nil && r.joinsSlots(after))
		r.note(after, true)
	}
}
