// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

const (
	// missedWithin is how long after its beginning a watch is expected to have sent the events that
	// were missed: the API server sends them at once.
	missedWithin = time.Second
	// drained is the pause between two events that shows that the missed ones have arrived.
	drained = 100 * time.Millisecond
	// missedAtMost limits the wait if events never pause.
	missedAtMost = 5 * time.Second
	// storedAtMost limits the wait for the store, which may drop the last event.
	storedAtMost = time.Minute
)

// failure is a time in which the API server is not followed.
type failure struct{ lists int64 } // that were complete before

// fail reports that the API server is not followed.
func (a *asker) fail(phase hook.Phase, why error) {
	a.failing.CompareAndSwap(nil, &failure{a.lists.Load()})
	a.informer.Report(phase, why)
}

// recover is called after a successful request. It reports the end of a failure, unless the store
// has objects: these are old until a watch has sent what was missed.
func (a *asker) recover() {
	if a.failing.Load() == nil || a.lists.Load() == 0 {
		a.failing.Store(nil)
		a.informer.Report(hook.Syncing, nil)
	}
}

// recovery is a wait for the store, which must get what was missed.
type recovery struct {
	began time.Time        // of the watch, or the end of its initial list
	next  <-chan time.Time // nil: there is no failure, or no list yet
}

// awaitMissed begins the wait after a failure, once.
func (s *stream) awaitMissed() {
	of, r := s.failing.Load(), &s.recovery
	if of == nil || r.next != nil || s.initial() {
		return
	}
	r.began = time.Now()
	wait := missedWithin
	if s.lists.Load() > of.lists { // only the store must still get the list
		wait = 0
	}
	r.next = time.After(wait)
}

// look ends the failure or waits on. seen is when the last event arrived.
func (s *stream) look(seen time.Time) {
	of, r := s.failing.Load(), &s.recovery
	if of == nil {
		r.next = nil
		return
	}
	since := time.Since(r.began)
	arrived := s.lists.Load() > of.lists || time.Since(seen) >= drained || since >= missedAtMost
	stored := parse(s.informer.Store().LastStoreSyncResourceVersion()) >= parse(s.options.ResourceVersion) || since >= storedAtMost
	if !arrived || !stored {
		r.next = time.After(drained)
		return
	}
	r.next = nil
	if s.failing.CompareAndSwap(of, nil) {
		s.informer.Report(hook.Syncing, nil)
	}
}
