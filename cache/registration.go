// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"maps"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache/internal/coalesce"
	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// registration is a subscription's event handler on one informer.
type registration struct {
	toolscache.ResourceEventHandlerRegistration

	of       *Subscription
	informer *informer

	// keeps is set while seen is recorded: if the informer may leave the scope, because client-go
	// drops the pending events of a removed handler. For an adopted informer it is set from the
	// first CatchUp on, because marks cannot pass through that.
	keeps atomic.Bool
	slots atomic.Int64 // the last mark of listwatch.Progress that the handler saw
	// The group's mutex guards the fields below.
	seen  map[types.NamespacedName]Object // the last state that the handler saw
	marks map[string]bool                 // not yet seen by the handler
}

func (r *registration) OnAdd(obj any, initial bool) {
	r.of.handler.OnAdd(obj, initial || r.joinsSlots(obj))
	r.note(obj, true)
}

func (r *registration) OnUpdate(before, after any) {
	r.of.handler.OnUpdate(before, after)
	r.note(after, true)
}

func (r *registration) OnDelete(obj any) {
	r.of.handler.OnDelete(obj)
	r.note(obj, false)
}

func (r *registration) note(obj any, there bool) {
	if !r.keeps.Load() {
		return
	}
	if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	if o, ok := obj.(Object); ok {
		r.put(o, there)
	}
	if r.informer.lw == nil { // CatchUp waits for this
		r.informer.env.ring()
	}
}

func (r *registration) put(o Object, there bool) {
	g := r.of.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if there {
		r.seen[object.Key(o)] = o
	} else {
		delete(r.seen, object.Key(o))
	}
}

func (r *registration) handled() map[types.NamespacedName]Object {
	g := r.of.group
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(r.seen)
}

// record starts to record seen, beginning with the store's objects. It returns false before the
// handler has seen the initial list.
func (r *registration) record() bool {
	if r.keeps.Load() || !r.HasSynced() {
		return r.keeps.Load()
	}
	r.keeps.Store(true)
	for _, obj := range r.informer.Store().List() {
		if o, ok := obj.(Object); ok {
			r.put(o, true)
		}
	}
	return true
}

func (r *registration) told() bool {
	seen, stored := r.handled(), r.informer.Store().List()
	for _, obj := range stored {
		o, ok := obj.(Object)
		if !ok {
			return false
		}
		last := seen[object.Key(o)]
		if last == nil || last.GetUID() != o.GetUID() || last.GetResourceVersion() != o.GetResourceVersion() {
			return false
		}
	}
	return len(seen) == len(stored)
}

func (r *registration) expect(mark string) {
	g := r.of.group
	g.mu.Lock()
	defer g.mu.Unlock()
	r.marks[mark] = true
}

// OnMark is also called when CatchUp stops waiting.
func (r *registration) OnMark(mark string) {
	if n, ok := listwatch.MarkOf(mark); ok {
		r.slots.Store(n)
	}
	g := r.of.group
	g.mu.Lock()
	delete(r.marks, mark)
	g.mu.Unlock()
	g.cache.ring()
}

func (r *registration) passed(mark string) bool {
	g := r.of.group
	g.mu.Lock()
	defer g.mu.Unlock()
	return !r.marks[mark]
}

// joinsSlots reports whether an add belongs to a slot whose mark this handler has not seen yet: it
// is part of the slot's initial list.
func (r *registration) joinsSlots(obj any) bool {
	i := r.informer
	if i.key.slots == nil {
		return false
	}
	wanted, _ := i.key.slots.now()
	mark := r.slots.Load()
	if i.lw.Progress.Has(&wanted, mark) {
		return false
	}
	o, ok := obj.(Object)
	if !ok {
		return false
	}
	var one listwatch.SlotSet
	slot, in := i.keySlot(o)
	one[slot] = in
	return in && !i.lw.Progress.Has(&one, mark)
}

// hasSlots reports whether the handler has seen all objects of the wanted slots.
func (r *registration) hasSlots() bool {
	i := r.informer
	if i.key.slots == nil {
		return true
	}
	wanted, _ := i.key.slots.now()
	return i.lw.Progress.Has(&wanted, r.slots.Load())
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
