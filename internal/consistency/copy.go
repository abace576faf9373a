// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package consistency answers one question about the local copy of one informer: does it show a write,
// and if not, when will it? Read-your-writes (C6) builds on it.
//
// The rules are in package cache, under "What a controller waits for". client-go's store knows its
// version unless the feature AtomicFIFO is off; then the object alone decides.
package consistency

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/hook"
)

// Copy is the local copy of an informer. Set the exported fields before its first use. Its functions
// may be called from anywhere.
type Copy struct {
	// Shared is client-go's informer.
	Shared toolscache.SharedIndexInformer
	// HasSynced reports whether the initial list is complete.
	HasSynced func() bool
	// Phase returns where the informer stands, and Standing describes it for errors.
	Phase    func() hook.Phase
	Standing func() string
	// Undecodable returns why an object cannot be decoded, or nil.
	Undecodable func(name types.NamespacedName) error
	// Name is the kind in errors.
	Name string
	// Kind is the kind of the objects; Place, Labels and Fields narrow it, as the informer's scope does.
	Kind   schema.GroupVersionKind
	Place  types.NamespacedName
	Labels labels.Selector
	Fields fields.Selector
	// Foreign is set if the informer may list something else than its kind suggests. Asked is set if an
	// API server is asked how the kind is served.
	Foreign, Asked bool
	// Guess is as what the kind is served, most likely.
	Guess schema.GroupResource
	// Mapping is how the kind was served last, or nil. It may be set at any time.
	Mapping atomic.Pointer[meta.RESTMapping]

	learned atomic.Pointer[schema.GroupResource] // what a foreign informer keeps for certain
	waiters waiters
}

func (c *Copy) store() toolscache.Store { return c.Shared.GetStore() }

// version returns the version that the store is at, or "" if that is not known.
func (c *Copy) version() string { return c.store().LastStoreSyncResourceVersion() }

// Stored returns what the store has at the name of a write, or nil.
func (c *Copy) Stored(w *Write) Object {
	obj, found, err := c.store().GetByKey(storeKey(w.At()))
	if err != nil || !found {
		return nil
	}
	o, _ := obj.(Object)
	return o
}

// Notify calls f once, off all locks, as soon as open returns false, which it asks when something has
// happened to the object of w, when the store has reached its version, and at each Look and End. f may
// be called before Notify returns. cancel ends it; f may be running then. If w is nil only Look and End
// count.
func (c *Copy) Notify(w *Write, open func() bool, f func()) (cancel func()) {
	one := &waiter{write: w, open: open, f: f}
	if c.add(one) {
		c.waiters.call(one) // what was shown before it was added would not come again
	} else {
		f()
	}
	return func() { c.waiters.remove(one) }
}

// Look asks every waiter again. Call it when the state of the informer, or its scope, has changed.
func (c *Copy) Look() {
	for _, one := range c.waiters.all() {
		c.waiters.call(one)
	}
}

// End wakes every waiter and takes the event handler off the informer. If it is to join, it waits for a
// callback that is running, and must not be called from one.
func (c *Copy) End(join bool) {
	w := &c.waiters
	w.mu.Lock()
	handle := w.handle
	w.handle, w.ended = nil, true
	w.mu.Unlock()
	switch { // both fail only if the informer has stopped
	case handle == nil:
	case join:
		_ = toolscache.ShutDownEventHandler(c.Shared, handle)
	default:
		_ = c.Shared.RemoveEventHandler(handle)
	}
	for _, one := range w.all() {
		if w.remove(one) {
			one.f()
		}
	}
}
