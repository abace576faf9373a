// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import "k8s.io/apimachinery/pkg/runtime/schema"

// Child is an object that an informer with a SlotOwner has stored.
type Child struct {
	Kind schema.GroupVersionKind
	// Owner is the kind of its controller.
	Owner schema.GroupKind
	// Slot is the slot of its controller.
	Slot uint8
	// Object is the stored one: do not change it.
	Object Object
}

// OnStored makes the informers of scopes with a SlotOwner call f for each object that they store,
// also for each new version. f must return soon, and be safe for concurrent use. Only the last f
// counts. Call OnStored before the cache runs.
func (s *Slots) OnStored(f func(Child)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored = f
}

func (s *Slots) onStored() func(Child) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored
}

// OnAdd implements toolscache.ResourceEventHandler.
func (a arrivals) OnAdd(obj any, _ bool) { a.store(obj) }

// OnUpdate implements toolscache.ResourceEventHandler.
func (a arrivals) OnUpdate(_, obj any) { a.store(obj) }

func (a arrivals) store(obj any) {
	i := a.informer
	o, ok := obj.(Object)
	f := i.key.slots.onStored()
	if !ok || f == nil || i.key.slotOwner.Kind == "" {
		return
	}
	if slot, ok := i.keySlot(o); ok {
		f(Child{Kind: i.key.gvk, Owner: i.key.slotOwner.GroupKind(), Slot: slot, Object: o})
	}
}
