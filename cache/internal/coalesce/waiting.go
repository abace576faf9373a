// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package coalesce

import (
	"container/list"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// waiting is an event of one object: up to three calls, in the order of the fields.
type waiting struct {
	do func() // in place of an event

	gone          any // an earlier object of the name, which the handler knows, or nil
	before, after any // an add without before; an update with both; or neither
	initial       bool
	merged        bool // before and after stand for several changes
	last          any  // a delete, or nil

	place  *list.Element // in the queue
	object *object       // or nil
}

// object has the waiting events of one object, the oldest first.
type object struct {
	key    types.NamespacedName
	events []*waiting
}

// merge makes one event of all.
func (o *object) merge(queue *list.List) {
	for _, w := range o.events[1:] {
		o.events[0].absorb(w)
		queue.Remove(w.place)
	}
	o.events = slices.Delete(o.events, 1, len(o.events))
}

// absorb adds a later event.
func (w *waiting) absorb(later *waiting) {
	if later.gone != nil {
		w.remove(later.gone)
	}
	switch {
	case later.after == nil:
	case later.before == nil:
		w.add(later.after, later.initial)
	default:
		w.update(later.before, later.after)
	}
	w.merged = w.merged || later.merged
	if later.last != nil {
		w.remove(later.last)
	}
}

func (w *waiting) add(obj any, initial bool) {
	switch {
	case w.last != nil:
		if w.after == nil || w.before != nil { // else the handler does not know it
			w.gone = w.last
		} else {
			w.merged = true
		}
		w.last, w.before, w.initial = nil, nil, initial
	case w.after != nil:
		w.merged, w.initial = true, w.initial && initial
	default:
		w.initial = initial
	}
	w.after = obj
}

func (w *waiting) update(before, after any) {
	again := sameVersion(before, after)
	switch {
	case w.last != nil:
		w.add(after, false)
		return
	case w.after != nil:
		if again {
			return
		}
		resynced := w.before != nil && sameVersion(w.before, w.after)
		w.merged, w.initial = w.merged || !resynced, false
	default:
		w.before = before
	}
	w.after = after
}

func (w *waiting) remove(obj any) { w.last = obj }

// call is one call of a handler.
type call struct {
	do                  func()
	before, after, gone any
	initial, merged     bool
}

// take removes the next call.
func (w *waiting) take() (c call, ok bool) {
	switch {
	case w.do != nil:
		c.do, w.do = w.do, nil
	case w.gone != nil:
		c.gone, w.gone = w.gone, nil
	case w.after != nil:
		c.before, c.after, c.initial, c.merged = w.before, w.after, w.initial, w.merged
		w.before, w.after = nil, nil
	case w.last != nil:
		c.gone, w.last = w.last, nil
	default:
		return c, false
	}
	return c, true
}

func (c call) to(h toolscache.ResourceEventHandler) {
	m, wants := h.(Merged)
	switch {
	case c.do != nil:
		c.do()
	case c.gone != nil:
		h.OnDelete(c.gone)
	case c.merged && wants:
		m.OnMerged(c.before, c.after, c.initial)
	case c.before == nil:
		h.OnAdd(c.after, c.initial)
	default:
		h.OnUpdate(c.before, c.after)
	}
}

// keyOf returns the name of an event's object. ok is false if it has none.
func keyOf(obj any) (key types.NamespacedName, ok bool) {
	if tombstone, is := obj.(toolscache.DeletedFinalStateUnknown); is {
		var err error
		key.Namespace, key.Name, err = toolscache.SplitMetaNamespaceKey(tombstone.Key)
		return key, err == nil
	}
	o, err := meta.Accessor(obj)
	if err != nil {
		return key, false
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}, true
}

// sameVersion reports whether an update is a resync.
func sameVersion(before, after any) bool {
	b, err := meta.Accessor(before)
	if err != nil {
		return false
	}
	a, err := meta.Accessor(after)
	return err == nil && b.GetResourceVersion() != "" && b.GetResourceVersion() == a.GetResourceVersion() && b.GetUID() == a.GetUID()
}
