// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// Slots selects the objects of some of 256 slots, for [Scope].Slots. A [Partitioner] maps each
// key to its slot. You may change the [Set] of slots at any time, and use it in several scopes.
//
// For slots that are added, each informer makes one list beside its watch, so add all at once.
// Sources deliver their objects as creates of an initial list. For slots that are removed, sources
// deliver deletes with the last known state, and the memory is freed.
type Slots struct {
	Set[uint8]

	by     Partitioner
	wanted atomic.Pointer[wantedSlots] // the elements
	users  map[*informer]struct{}      // guarded by mu
}

type wantedSlots struct {
	slots   listwatch.SlotSet
	changed chan struct{} // closed by the next change
}

// Partitioner maps keys to slots, such as one of package shard. It must always return the same
// slot for a key, and be safe for concurrent use. The cache drops an object for which it fails, and
// State names the object.
type Partitioner interface {
	Slot(key types.NamespacedName) (uint8, error)
}

// NewSlots returns an empty set.
func NewSlots(by Partitioner) *Slots {
	s := &Slots{by: by, users: map[*informer]struct{}{}}
	s.wanted.Store(&wantedSlots{changed: make(chan struct{})})
	s.tell(s, s.turn)
	return s
}

func (s *Slots) turn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := &wantedSlots{changed: make(chan struct{})}
	for slot := range s.elements {
		next.slots[slot] = true
	}
	close(s.wanted.Swap(next).changed)
}

// now returns the set, and a channel that its next change closes.
func (s *Slots) now() (wanted listwatch.SlotSet, changed <-chan struct{}) {
	w := s.wanted.Load()
	return w.slots, w.changed
}

func (s *Slots) has(slot uint8) bool { return s.wanted.Load().slots[slot] }

// WaitForSync returns nil once each informer of the set has the objects of the slots; without
// slots, of all in the set. If ctx ends or a cache stops before, the error describes the informer.
// A slot that is not in the set, or is removed meanwhile, is an error.
func (s *Slots) WaitForSync(ctx context.Context, slots ...uint8) error {
	if len(slots) == 0 {
		slots = s.Elements()
	}
	var all listwatch.SlotSet
	for _, slot := range slots {
		all[slot] = true
	}
	for {
		_, changed := s.now()
		for _, slot := range slots {
			if !s.has(slot) {
				return fmt.Errorf("%w: the slot %d is not in the cache.Slots; add it first", ErrNotSynced, slot)
			}
		}
		i, news := s.behind(&all)
		if i == nil {
			return nil
		}
		if run.Closed(i.stopped) {
			return fmt.Errorf("%w, and never will be: %w", ErrNotSynced, reason(i.state()))
		}
		select {
		case <-changed:
		case <-news:
		case <-i.stopped:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w: %w", ErrNotSynced, reason(i.state()), context.Cause(ctx))
		}
	}
}

// behind returns an informer that lacks some of the slots, and a channel that is closed when that
// may have changed.
func (s *Slots) behind(slots *listwatch.SlotSet) (*informer, <-chan struct{}) {
	s.mu.Lock()
	users := slices.Collect(maps.Keys(s.users))
	s.mu.Unlock()
	for _, i := range users {
		news := i.env.changed()
		if !i.hasSlots(slots) && s.uses(i) {
			return i, news
		}
	}
	return nil, nil
}

func (s *Slots) uses(i *informer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.users[i]
	return ok
}

func (s *Slots) enter(i *informer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[i] = struct{}{}
}

func (s *Slots) leave(i *informer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.users, i)
}

func (s *Slots) validate() error {
	if s.by == nil {
		return errors.New("cache.Scope.Slots has no Partitioner; make it with cache.NewSlots")
	}
	return nil
}
