// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
)

// Slots is the number of slots of every [Partition].
const Slots = 256

// Partition divides keys among processes: each key belongs to one of 256 slots, and each slot to
// one process at a time. A *shard.Group is one. All methods are safe for concurrent use.
type Partition interface {
	// Slot returns the slot of the key with a name, always the same one, in every process, or an
	// error if it has none.
	Slot(name types.NamespacedName) (slot uint8, err error)
	// Owned returns the slots of this process. changed is closed when they change.
	Owned() (all []OwnedSlot, changed <-chan struct{})
}

// OwnedSlot is one slot for the time for which this process owns it. Values are comparable: a slot
// that comes back is another one. All methods are safe for concurrent use.
type OwnedSlot interface {
	// Slot is its number.
	Slot() uint8
	// Context returns ctx with the term that fences the requests of the slot's work.
	Context(ctx context.Context) context.Context
	// Begin reports whether the slot is still owned. Then the work on a key may begin, and must end
	// with End: the slot is not given up before.
	Begin() bool
	// End ends what Begin has begun.
	End()
	// Stopped reports whether the process must not begin work any more.
	Stopped() bool
	// Waits records why a controller's first Reconcile waits, for the reports. With an empty
	// reason, it does not wait any more.
	Waits(controller, reason string)
}

// SlotCache holds the objects of this process's slots, and no others. *cache.Slots is one. All
// methods must be safe for concurrent use.
type SlotCache interface {
	// Add begins to keep the objects of more slots.
	Add(slots ...uint8)
	// Remove drops the objects of slots.
	Remove(slots ...uint8)
	// WaitForSync returns nil when the objects of the slots are there, or an error if ctx ends
	// before.
	WaitForSync(ctx context.Context, slots ...uint8) error
}
