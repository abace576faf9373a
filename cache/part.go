// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// newPart returns what the informer keeps of its scope, or nil for everything.
func (i *informer) newPart() *listwatch.Part {
	if i.key.slots == nil {
		return nil
	}
	return &listwatch.Part{SlotSelector: i, Owner: i.key.slotOwner}
}

func (i *informer) Slot(key types.NamespacedName) (uint8, error) { return i.key.slots.by.Slot(key) }

func (i *informer) Wanted() (listwatch.SlotSet, <-chan struct{}) { return i.key.slots.now() }

func (i *informer) NewMark(name string) runtime.Object { return i.mark(name) }

// arrivals is an informer's own event handler, for the marks after the objects of new slots.
type arrivals struct {
	toolscache.ResourceEventHandlerFuncs

	informer *informer
}

func (a arrivals) OnMark(mark string) {
	i := a.informer
	n, ok := listwatch.MarkOf(mark)
	if !ok {
		return
	}
	i.lw.Progress.Arrived(n)
	i.env.ring()
	i.view.Look()
}

func (i *informer) followSlots() {
	if i.key.slots == nil {
		return
	}
	i.key.slots.enter(i)
	// It fails only if the informer has stopped.
	_, _ = i.shared.AddEventHandlerWithOptions(arrivals{informer: i}, toolscache.HandlerOptions{ResyncPeriod: new(time.Duration)})
}

func (i *informer) hasSlots(slots *listwatch.SlotSet) bool {
	return i.HasSynced() && i.lw.Progress.Has(slots, i.lw.Progress.Stored())
}

// hasWanted reports whether the store is synced, with the slots that are wanted now.
func (i *informer) hasWanted() bool {
	if i.key.slots == nil {
		return i.HasSynced()
	}
	wanted, _ := i.key.slots.now()
	return i.hasSlots(&wanted)
}

// keySlot returns the slot of the key that counts for an object. ok is false if it has none.
func (i *informer) keySlot(o metav1.Object) (slot uint8, ok bool) {
	p := listwatch.Part{Owner: i.key.slotOwner}
	key, ok := p.KeyOf(o, i.ownersClusterScoped())
	if !ok {
		return 0, false
	}
	slot, err := i.Slot(key)
	return slot, err == nil
}

func (i *informer) ownersClusterScoped() bool {
	if i.key.slotOwner.Kind == "" {
		return false
	}
	m := i.env.backend.Known(i.key.slotOwner)
	return m != nil && !isNamespaced(m)
}

// writtenSlot returns the slot of a written object. known is false if it cannot be told, in if the
// object has no slot.
func (i *informer) writtenSlot(w *consistency.Write) (slot uint8, in, known bool) {
	switch {
	case w.Batch != nil:
		return 0, false, false
	case i.key.slotOwner.Kind == "":
		slot, err := i.Slot(w.At())
		return slot, err == nil, err == nil
	case w.Object == nil:
		return 0, false, false
	}
	if kind := w.Object.GetObjectKind().GroupVersionKind().Kind; kind != "" && kind != i.key.gvk.Kind && kind != "PartialObjectMetadata" {
		return 0, false, false // a subresource, such as a Scale
	}
	o, err := meta.Accessor(w.Object)
	if err != nil {
		return 0, false, false
	}
	slot, in = i.keySlot(o)
	return slot, in, true
}

// Outside reports whether a written object is certainly not in the wanted slots.
func (i *informer) Outside(w *consistency.Write) bool {
	if i.key.slots == nil {
		return false
	}
	slot, in, known := i.writtenSlot(w)
	return known && (!in || !i.key.slots.has(slot))
}

// Joins reports whether a written object is in a wanted slot that the store does not have yet.
func (i *informer) Joins(w *consistency.Write) bool {
	if i.key.slots == nil {
		return false
	}
	slot, in, known := i.writtenSlot(w)
	if !known || !in || !i.key.slots.has(slot) {
		return false
	}
	var one listwatch.SlotSet
	one[slot] = true
	return !i.hasSlots(&one)
}

// awaitSlot waits until the store has the slot of a name. It returns an error for a name whose slot
// is not wanted. If the keys of owners count, it cannot tell.
func (i *informer) awaitSlot(ctx context.Context, name types.NamespacedName) error {
	s := i.key.slots
	if s == nil || i.key.slotOwner.Kind != "" {
		return nil
	}
	slot, err := i.Slot(name)
	if err != nil {
		return err
	}
	var one listwatch.SlotSet
	for one[slot] = true; ; {
		changed := i.env.changed()
		_, others := s.now()
		switch {
		case !s.has(slot):
			return fmt.Errorf("%s is in slot %d, which this handle does not keep; add it to its cache.Slots, or use another handle", object.Name(name), slot)
		case i.hasSlots(&one):
			return nil
		}
		select {
		case <-changed:
		case <-others:
		case <-i.stopped:
			return fmt.Errorf("%w, and never will be: %w", ErrNotSynced, reason(i.state()))
		case <-ctx.Done():
			return fmt.Errorf("%w: slot %d: %w: %w", ErrNotSynced, slot, reason(i.state()), context.Cause(ctx))
		}
	}
}

// slotState describes the slots for State.
func (i *informer) slotState() string {
	if i.key.slots == nil {
		return ""
	}
	wanted, _ := i.key.slots.now()
	text := fmt.Sprintf("keeps %d of %d slots", len(i.key.slots.Elements()), len(wanted))
	if !i.hasSlots(&wanted) {
		text += "; adds some"
	}
	if err := i.lw.Progress.Err(); err != nil {
		text += fmt.Sprintf("; cannot list the added ones: %v", err)
	}
	return text
}
