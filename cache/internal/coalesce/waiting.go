// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package coalesce

import (
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

	prev, next *waiting // in the list
	object     *object  // or nil
	newer      *waiting // of the same object
}

// list has waiting events in the order of their arrival.
type list struct{ first, last *waiting }

func (l *list) push(w *waiting) {
	if w.prev = l.last; w.prev == nil {
		l.first = w
	} else {
		w.prev.next = w
	}
	l.last = w
}

func (l *list) remove(w *waiting) {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

// object has the n waiting events of one object.
type object struct {
	key            types.NamespacedName
	oldest, newest *waiting
	n              int
}

func (o *object) push(w *waiting) {
	if w.object = o; o.n == 0 {
		o.oldest = w
	} else {
		o.newest.newer = w
	}
	o.newest = w
	o.n++
}

// pop removes the oldest event.
func (o *object) pop() {
	w := o.oldest
	o.oldest, w.newer = w.newer, nil
	o.n--
}

// merge makes one event of all.
func (o *object) merge(l *list) {
	for w := o.oldest.newer; w != nil; w = w.newer {
		o.oldest.absorb(w)
		l.remove(w)
	}
	o.oldest.newer, o.newest, o.n = nil, o.oldest, 1
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
