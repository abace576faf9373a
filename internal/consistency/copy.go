// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package consistency decides whether the store of one informer shows a write, and calls a function
// when it does. Package cache describes the rules under "Read-your-writes".
//
// client-go's store knows its version unless the feature gate AtomicFIFO is off; then only the
// object's own version counts.
package consistency

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// Copy is the local copy of an informer. Set the exported fields before its first use. Its methods
// are safe for concurrent use.
type Copy struct {
	// Shared is client-go's informer.
	Shared toolscache.SharedIndexInformer
	// HasSynced reports whether the initial list is complete.
	HasSynced func() bool
	// Phase returns the informer's phase, and Standing describes its state for errors.
	Phase    func() hook.Phase
	Standing func() string
	// Undecodable returns why an object cannot be decoded, or nil.
	Undecodable func(name types.NamespacedName) error
	// Name names the kind in errors.
	Name string
	// Kind is the kind of the objects. Place, Labels and Fields narrow it as the informer's scope
	// does.
	Kind   schema.GroupVersionKind
	Place  types.NamespacedName
	Labels labels.Selector
	Fields fields.Selector
	// Outside reports whether the informer certainly does not keep the object of a write, Joins
	// whether it keeps the object but does not have it yet. Default: neither.
	Outside, Joins func(w *Write) bool
	// Doubts reports whether the versions of the API server, of the store and of a write may not be
	// comparable. Default: they are.
	Doubts func(w *Write) bool
	// Foreign is set if the informer's list options are unknown, Asked if an API server is asked
	// how the kind is served.
	Foreign, Asked bool
	// Guess is the most likely resource of the kind.
	Guess schema.GroupResource
	// Mapping is the last known mapping of the kind, or nil. It may be set at any time.
	Mapping atomic.Pointer[meta.RESTMapping]

	learned atomic.Pointer[schema.GroupResource] // the resource of a foreign informer
	waiters waiters
	reset   atomic.Pointer[time.Time]
}

// Reset records that the store has a list that was made after a time, at which the API server was
// restored: it shows all writes that were answered before, and all events that were delivered
// before, whatever their versions.
func (c *Copy) Reset(at time.Time) {
	c.reset.Store(&at)
	c.Look()
}

// HasReset reports whether Reset was called.
func (c *Copy) HasReset() bool { return c.reset.Load() != nil }

// WasReset reports whether a write was answered, or an event delivered, before a Reset, so its
// version means nothing.
func (c *Copy) WasReset(w *Write) bool {
	known, at := w.Answered, c.reset.Load()
	if w.Event != nil {
		known = w.Event.At
	}
	return at != nil && !known.IsZero() && !known.After(*at)
}

func (c *Copy) store() toolscache.Store { return c.Shared.GetStore() }

func (c *Copy) version() string { return c.store().LastStoreSyncResourceVersion() }

// Stored returns the object with the name of a write, or nil.
func (c *Copy) Stored(w *Write) object.Object {
	obj, found, err := c.store().GetByKey(storeKey(w.At()))
	if err != nil || !found {
		return nil
	}
	o, _ := obj.(object.Object)
	return o
}

// recognizes reports whether a foreign informer without a mapping keeps the resource of a write:
// its store has the written object, by UID, or the resource was learned before.
func (c *Copy) recognizes(w *Write) bool {
	if !c.Foreign || c.certain() {
		return false
	}
	if known := c.learned.Load(); known != nil && known.Resource == w.Resource.Resource && sameGroup(known.Resource, known.Group, w.Resource.Group) {
		return true
	}
	if w.UID == "" {
		return false
	}
	stored := c.Stored(w)
	if stored == nil || !w.is(stored) {
		return false
	}
	r := w.Resource
	c.learned.Store(&r)
	return true
}

func (c *Copy) certain() bool { return c.Asked && c.Mapping.Load() != nil }

// Keeps reports whether the informer keeps objects of w's resource.
func (c *Copy) Keeps(w *Write) bool { return c.Serves(w.Resource) || c.recognizes(w) }

// Serves reports whether the informer is for a resource, in any version and form. Without a mapping
// it compares with Guess.
func (c *Copy) Serves(r schema.GroupResource) bool {
	if m := c.Mapping.Load(); m != nil {
		return m.Resource.Resource == r.Resource && sameGroup(r.Resource, m.Resource.Group, r.Group)
	}
	return c.Guess.Resource == r.Resource && (c.Kind.Version == "" || sameGroup(r.Resource, c.Guess.Group, r.Group))
}

// sameGroup reports whether two groups are the same for a resource. Events are served in two
// groups.
func sameGroup(resource, a, b string) bool {
	const newer = "events.k8s.io"
	return a == b || resource == "events" && (a == "" && b == newer || a == newer && b == "")
}

// UsualPlural returns the most likely resource of a kind.
func UsualPlural(gvk schema.GroupVersionKind) *schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	r := plural.GroupResource()
	return &r
}

type waiter struct {
	write *Write      // nil to wait for the informer's state only
	open  func() bool // reports whether the wait is still needed
	f     func()
}

// waiters are the waiters of one informer. The first one adds an event handler, whose calls are
// cheap without waiters.
type waiters struct {
	n atomic.Int64 // changed under the mutex

	mu     sync.Mutex // guards the fields below
	handle toolscache.ResourceEventHandlerRegistration
	ended  bool // no more events will come
	named  map[types.NamespacedName]map[*waiter]struct{}
	ahead  []*waiter // sorted by version; not reached by the store
}

// Notify calls f once, without locks, as soon as open returns false. It calls open at each Look and
// End. Unless w is nil, it also calls open after each event of w's object, and when the store
// reaches w's version. f may run before Notify returns. cancel ends the wait; f may still be
// running then.
func (c *Copy) Notify(w *Write, open func() bool, f func()) (cancel func()) {
	one := &waiter{write: w, open: open, f: f}
	if c.add(one) {
		c.waiters.call(one) // it may have been shown before it was added
	} else {
		f()
	}
	return func() { c.waiters.remove(one) }
}

// Look checks all waiters. Call it when the informer's state or scope has changed.
func (c *Copy) Look() {
	for _, one := range c.waiters.all() {
		c.waiters.call(one)
	}
}

// End calls all waiters and removes the event handler. With join, it waits for a running callback;
// a callback must not call it.
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

func (one *waiter) at() (name types.NamespacedName) {
	if one.write != nil {
		name = one.write.At()
	}
	return name
}

// add returns false if the waiter needs events and no more will come.
func (c *Copy) add(one *waiter) bool {
	w, at := &c.waiters, one.at()
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.write != nil && !c.listenLocked() {
		return false
	}
	if w.named == nil {
		w.named = map[types.NamespacedName]map[*waiter]struct{}{}
	}
	if w.named[at] == nil {
		w.named[at] = map[*waiter]struct{}{}
	}
	w.named[at][one] = struct{}{}
	if one.write != nil && number(one.write.ResourceVersion) {
		w.ahead = slices.Insert(w.ahead, w.placeLocked(one), one)
	}
	w.n.Add(1)
	return true
}

// listenLocked returns false if no more events will come.
func (c *Copy) listenLocked() bool {
	w := &c.waiters
	if w.ended || w.handle != nil {
		return !w.ended
	}
	handler := toolscache.ResourceEventHandlerFuncs{AddFunc: c.event, UpdateFunc: func(_, obj any) { c.event(obj) }, DeleteFunc: c.event}
	handle, err := c.Shared.AddEventHandlerWithOptions(handler, toolscache.HandlerOptions{ResyncPeriod: new(time.Duration)})
	w.handle, w.ended = handle, err != nil // the informer has stopped
	return !w.ended
}

func (w *waiters) placeLocked(one *waiter) int {
	place, _ := slices.BinarySearchFunc(w.ahead, one.write.ResourceVersion, func(other *waiter, version string) int {
		c, _ := resourceversion.CompareResourceVersion(other.write.ResourceVersion, version)
		return c
	})
	for n := place; n < len(w.ahead) && w.ahead[n].write.ResourceVersion == one.write.ResourceVersion; n++ {
		if w.ahead[n] == one {
			return n
		}
	}
	return place
}

// remove removes a waiter. If it returns true, the caller may call the waiter.
func (w *waiters) remove(one *waiter) bool {
	at := one.at()
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.named[at][one]; !there {
		return false
	}
	if delete(w.named[at], one); len(w.named[at]) == 0 {
		delete(w.named, at)
	}
	if one.write != nil {
		if n := w.placeLocked(one); n < len(w.ahead) && w.ahead[n] == one {
			w.ahead = slices.Delete(w.ahead, n, n+1)
		}
	}
	w.n.Add(-1)
	return true
}

func (w *waiters) call(one *waiter) {
	if !one.open() && w.remove(one) {
		one.f()
	}
}

func (w *waiters) all() []*waiter {
	if w.n.Load() == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*waiter, 0, w.n.Load())
	for _, some := range w.named {
		for one := range some {
			all = append(all, one)
		}
	}
	return all
}

func (c *Copy) event(obj any) {
	if c.waiters.n.Load() == 0 {
		return
	}
	if missed, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = missed.Obj
	}
	o, _ := obj.(object.Object)
	for _, one := range c.waiters.concerned(o, c.version()) {
		c.waiters.call(one)
	}
}

// concerned returns the waiters to check for an object and for the store's version.
func (w *waiters) concerned(o object.Object, version string) (some []*waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.ahead) > 0 && past(version, w.ahead[0].write.ResourceVersion) {
		some = append(some, w.ahead[0])
		w.ahead[0] = nil
		w.ahead = w.ahead[1:]
	}
	if o != nil {
		for one := range w.named[object.Key(o)] {
			some = append(some, one)
		}
	}
	return some
}
