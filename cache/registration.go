// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"maps"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/listwatch"
)

// registration is a subscription's event handler on one informer.
type registration struct {
	toolscache.ResourceEventHandlerRegistration

	of       *Subscription
	informer *informer

	// keeps is set while seen is kept: if the informer may leave the scope, because client-go drops what
	// still waits for a handler when that is removed; and for an adopted informer from its first CatchUp,
	// because a mark cannot go through it.
	keeps atomic.Bool
	// The group's mutex guards what follows.
	seen  map[types.NamespacedName]Object // what the handler was told of last
	marks map[string]bool                 // on their way to the handler
}

// OnAdd implements toolscache.ResourceEventHandler.
func (r *registration) OnAdd(obj any, initial bool) {
	r.of.handler.OnAdd(obj, initial)
	r.note(obj, true)
}

// OnUpdate implements toolscache.ResourceEventHandler.
func (r *registration) OnUpdate(before, after any) {
	r.of.handler.OnUpdate(before, after)
	r.note(after, true)
}

// OnDelete implements toolscache.ResourceEventHandler.
func (r *registration) OnDelete(obj any) {
	if mark, ok := markOf(obj); ok {
		r.arrived(mark)
		r.informer.env.ring()
		return
	}
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
	if r.informer.lw == nil { // CatchUp waits for it
		r.informer.env.ring()
	}
}

func (r *registration) put(o Object, there bool) {
	g := r.of.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if there {
		r.seen[listwatch.NameOf(o)] = o
	} else {
		delete(r.seen, listwatch.NameOf(o))
	}
}

// handled returns what the handler was told of last, object by object.
func (r *registration) handled() map[types.NamespacedName]Object {
	g := r.of.group
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(r.seen)
}

// record begins to keep seen, with what the store has now. It returns false if the handler has yet to
// be told of the initial list.
func (r *registration) record() bool {
	if r.keeps.Load() || !r.HasSynced() {
		return r.keeps.Load()
	}
	r.keeps.Store(true)
	for _, obj := range r.informer.store().List() {
		if o, ok := obj.(Object); ok {
			r.put(o, true)
		}
	}
	return true
}

// told reports whether seen is what the store has.
func (r *registration) told() bool {
	seen, stored := r.handled(), r.informer.store().List()
	for _, obj := range stored {
		o, ok := obj.(Object)
		if !ok {
			return false
		}
		last := seen[listwatch.NameOf(o)]
		if last == nil || last.GetUID() != o.GetUID() || last.GetResourceVersion() != o.GetResourceVersion() {
			return false
		}
	}
	return len(seen) == len(stored)
}

// markUID is the UID of a mark: the delete of an object that never existed, which CatchUp sends through
// an informer. It reaches the handler after the events of all that the store has, and no foreign one.
const markUID = types.UID("setpoint.dev/mark")

// mark makes a mark.
func (i *informer) mark(name string) Object {
	mark, _ := i.example.DeepCopyObject().(Object)
	mark.SetUID(markUID)
	mark.SetName(name)
	return mark
}

// markOf returns the name of a mark.
func markOf(obj any) (name string, ok bool) {
	if o, is := obj.(Object); is && o.GetUID() == markUID {
		return o.GetName(), true
	}
	return "", false
}

// expect notes that a mark will come.
func (r *registration) expect(mark string) {
	g := r.of.group
	g.mu.Lock()
	defer g.mu.Unlock()
	r.marks[mark] = true
}

// arrived notes that a mark has come, or is not waited for any more.
func (r *registration) arrived(mark string) {
	g := r.of.group
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(r.marks, mark)
}

// passed reports whether a mark that was expected has come.
func (r *registration) passed(mark string) bool {
	g := r.of.group
	g.mu.Lock()
	defer g.mu.Unlock()
	return !r.marks[mark]
}
