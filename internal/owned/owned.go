// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package owned is the table of the slots that this process owns. A shard.Group writes it, and
// controllers read it: they reconcile a key only between Begin and End of its slot's adoption.
package owned

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/slotlabel"
	"github.com/setpoint-dev/setpoint/internal/slots"
	"github.com/setpoint-dev/setpoint/term"
)

// Slot is a slot of the group, below Count.
type Slot = slots.Slot

// Count is the number of slots of every group.
const Count = slots.Slots

// Slots is the table. It is safe for concurrent use.
type Slots struct {
	// Audits has samples of the keys of this process.
	Audits Audits

	of func(types.NamespacedName) (uint8, error)

	mu      sync.Mutex // guards what follows
	current map[uint8]*Adoption
	changed chan struct{} // closed by the next change
}

// New returns an empty table. of maps a key to its slot.
func New(of func(types.NamespacedName) (uint8, error)) *Slots {
	return &Slots{of: of, current: map[uint8]*Adoption{}, changed: make(chan struct{})}
}

// Slot returns the slot of a key. It fails if the user's function does.
func (s *Slots) Slot(key types.NamespacedName) (slots.Slot, error) { return s.of(key) }

// Current returns the adoptions that have begun and not stopped, by slot, and a channel that the
// next change closes. You own the slice.
func (s *Slots) Current() (all []*Adoption, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slot := range slices.Sorted(maps.Keys(s.current)) {
		all = append(all, s.current[slot])
	}
	return all, s.changed
}

// Adopt begins adoptions. An earlier one of the same slot has stopped.
func (s *Slots) Adopt(all ...*Adoption) {
	s.edit(func() {
		for _, a := range all {
			s.current[a.Slot] = a
		}
	})
}

// Stop ends adoptions: no work of them begins any more. Running work goes on: see Adoption.Idle.
func (s *Slots) Stop(all ...*Adoption) {
	for _, a := range all {
		a.stop()
	}
	s.edit(func() {
		for _, a := range all {
			if s.current[a.Slot] == a {
				delete(s.current, a.Slot)
			}
		}
	})
}

func (s *Slots) edit(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Adoption is the time for which this process owns a slot. It is safe for concurrent use.
type Adoption struct {
	Slot slots.Slot
	// Epoch tells adoptions of the slot apart.
	Epoch uint64
	// Term fences the requests of the slot's work.
	Term *term.Term
	// Label is for the children that the slot's work writes, or nil.
	Label *slotlabel.Label
	// Left has former owners' writes, which caches must show before the first Reconcile. It is
	// nil if there are none, or if they are unknown.
	Left *term.Handover

	mu      sync.Mutex // guards what follows
	running int
	stopped bool
	idle    chan struct{}     // or nil
	waits   map[string]string // by controller: what its first Reconcile waits for
}

// Context returns a context for the slot's work.
func (a *Adoption) Context(ctx context.Context) context.Context {
	return slotlabel.With(term.With(ctx, a.Term), a.Label, a.Slot)
}

// Begin reports whether work of the slot may begin. If so, call End when it has returned.
func (a *Adoption) Begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped {
		return false
	}
	a.running++
	return true
}

// End ends what Begin has begun.
func (a *Adoption) End() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running--
	a.settleLocked()
}

// Stopped reports whether the adoption has ended.
func (a *Adoption) Stopped() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stopped
}

// Idle returns a channel that is closed when the adoption has stopped and none of its work runs.
func (a *Adoption) Idle() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.idle == nil {
		a.idle = make(chan struct{})
		a.settleLocked()
	}
	return a.idle
}

// Waits records why a controller does not reconcile the slot's keys yet; "" means that it does.
func (a *Adoption) Waits(controller, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waits == nil {
		a.waits = map[string]string{}
	}
	delete(a.waits, controller)
	if reason != "" {
		a.waits[controller] = reason
	}
}

// Waiting returns the controllers that do not reconcile the slot's keys yet, and why.
func (a *Adoption) Waiting() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.waits)
}

func (a *Adoption) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	a.settleLocked()
}

func (a *Adoption) settleLocked() {
	if !a.stopped || a.running > 0 || a.idle == nil {
		return
	}
	select {
	case <-a.idle:
	default:
		close(a.idle)
	}
}
