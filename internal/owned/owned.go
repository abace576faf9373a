// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package owned is the table of the slots that this process owns. A shard.Group writes it, and
// controllers read it: they reconcile a key only between Begin and End of its slot.
package owned

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/term"
)

// Table holds the slots by number. It is safe for concurrent use.
type Table struct {
	returned chan struct{}

	mu      sync.Mutex // guards what follows, and the state of all slots
	current [term.Slots]*Slot
	changed chan struct{} // closed by the next change of current
}

// New returns an empty table.
func New() *Table {
	return &Table{returned: make(chan struct{}, 1), changed: make(chan struct{})}
}

// Owned returns the slots that are owned and not stopped, by number, and a channel that the next
// change closes. You own the slice.
func (s *Table) Owned() (all []term.OwnedSlot, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.current {
		if a != nil {
			all = append(all, a)
		}
	}
	return all, s.changed
}

// Acquire adds slots. An earlier one of the same number has stopped.
func (s *Table) Acquire(all ...*Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range all {
		a.in, a.began, a.waits = s, time.Now(), map[string]string{}
		s.current[a.Number] = a
	}
	s.tellLocked()
}

// Stop ends the ownership of slots: no work of them begins any more. Running work goes on: see
// Slot.Idle.
func (s *Table) Stop(all ...*Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range all {
		a.stopped = true
		if s.current[a.Number] == a {
			s.current[a.Number] = nil
		}
		s.settleLocked(a)
	}
	s.tellLocked()
}

func (s *Table) tellLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Returned has an element when a slot has become idle. It is for one receiver.
func (s *Table) Returned() <-chan struct{} { return s.returned }

func (s *Table) settleLocked(a *Slot) {
	if !a.stopped || a.running > 0 {
		return
	}
	select {
	case s.returned <- struct{}{}:
	default:
	}
}

// Slot is a slot for the time for which this process owns it. If it comes back, it is another one.
// Its methods are for the time after Table.Acquire, and safe for concurrent use.
type Slot struct {
	Number uint8
	// Epoch tells the times apart for which the process owns the slot.
	Epoch uint64
	// Term fences the requests of the slot's work. It has inherited the former owners' writes, if
	// they are known: caches must show them before the first Reconcile.
	Term *fence.Term

	in    *Table // its mu guards what follows; also began, which does not change
	began time.Time

	running int
	stopped bool
	waits   map[string]string // by controller: what its first Reconcile waits for
}

// Began returns the time of Acquire.
func (a *Slot) Began() time.Time { return a.began }

// Slot implements term.OwnedSlot.
func (a *Slot) Slot() uint8 { return a.Number }

// Context returns a context for the slot's work.
func (a *Slot) Context(ctx context.Context) context.Context {
	return fence.With(ctx, a.Term)
}

// Begin reports whether work of the slot may begin. If so, call End when it has returned.
func (a *Slot) Begin() bool {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	if a.stopped {
		return false
	}
	a.running++
	return true
}

// End ends what Begin has begun.
func (a *Slot) End() {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	a.running--
	a.in.settleLocked(a)
}

// Stopped reports whether the ownership has ended.
func (a *Slot) Stopped() bool {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	return a.stopped
}

// Idle reports whether the slot has stopped and none of its work runs.
func (a *Slot) Idle() bool {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	return a.stopped && a.running == 0
}

// Waits records why a controller does not reconcile the slot's keys yet; "" means that it does.
func (a *Slot) Waits(controller, reason string) {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	delete(a.waits, controller)
	if reason != "" {
		a.waits[controller] = reason
	}
}

// Waiting returns the controllers that do not reconcile the slot's keys yet, and why.
func (a *Slot) Waiting() map[string]string {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	return maps.Clone(a.waits)
}
