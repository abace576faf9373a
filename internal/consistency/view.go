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
	"strconv"
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

// Informer describes the informer of a View. Package cache implements it. All methods are safe for
// concurrent use.
type Informer interface {
	// HasSynced reports whether the initial list is complete.
	HasSynced() bool
	Phase() hook.Phase
	// Standing describes the informer's state for errors.
	Standing() string
	// Undecodable returns why an object cannot be decoded, or nil.
	Undecodable(name types.NamespacedName) error
	// Outside reports whether the object of a write is certainly not in the informer's slots.
	Outside(w *Write) bool
	// Joins reports whether the object of a write is in a slot that the informer keeps, but does
	// not have yet.
	Joins(w *Write) bool
	// Doubts reports whether the versions of the API server, of the store and of a write may not be
	// comparable.
	Doubts(w *Write) bool
}

// View is the cached state of one informer. Set the exported fields before its first use. Its
// methods are safe for concurrent use.
type View struct {
	Informer Informer
	// Shared is client-go's informer.
	Shared toolscache.SharedIndexInformer
	// Name names the kind in errors.
	Name string
	// Kind is the kind of the objects. Place, Labels and Fields narrow it as the informer's scope
	// does.
	Kind   schema.GroupVersionKind
	Place  types.NamespacedName
	Labels labels.Selector
	Fields fields.Selector
	// Slots is set if the informer keeps only some slots.
	Slots bool
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
	came    atomic.Uint64 // the newest version of an object, or 0
}

// Came records the version of an object that the store will show.
func (view *View) Came(version string) {
	v, err := strconv.ParseUint(version, 10, 64)
	for err == nil {
		if last := view.came.Load(); v <= last || view.came.CompareAndSwap(last, v) {
			return
		}
	}
}

// Newest returns the newest version that an object has had, or "" if that is unknown.
func (view *View) Newest() string {
	if v := view.came.Load(); v > 0 {
		return strconv.FormatUint(v, 10)
	}
	return ""
}

// Reset records that the store has a list that was made after a time, at which the API server was
// restored: it shows all writes that were answered before, and all events that were delivered
// before, whatever their versions.
func (view *View) Reset(at time.Time) {
	view.reset.Store(&at)
	view.came.Store(0)
	for _, obj := range view.store().List() { // they came before this
		if o, ok := obj.(object.Object); ok {
			view.Came(o.GetResourceVersion())
		}
	}
	view.Look()
}

// HasReset reports whether Reset was called.
func (view *View) HasReset() bool { return view.reset.Load() != nil }

// WasReset reports whether a write was answered, or an event delivered, before a Reset, so its
// version means nothing.
func (view *View) WasReset(w *Write) bool {
	known, at := w.Answered, view.reset.Load()
	if w.Event != nil {
		known = w.Event.At
	}
	return at != nil && !known.IsZero() && !known.After(*at)
}

func (view *View) store() toolscache.Store { return view.Shared.GetStore() }

func (view *View) version() string { return view.store().LastStoreSyncResourceVersion() }

// Stored returns the object with the name of a write, or nil.
func (view *View) Stored(w *Write) object.Object {
	obj, found, err := view.store().GetByKey(object.Name(w.At()))
	if err != nil || !found {
		return nil
	}
	o, _ := obj.(object.Object)
	return o
}

// recognizes reports whether a foreign informer without a mapping keeps the resource of a write:
// its store has the written object, by UID, or the resource was learned before.
func (view *View) recognizes(w *Write) bool {
	if !view.Foreign || view.certain() {
		return false
	}
	if known := view.learned.Load(); known != nil && known.Resource == w.Resource.Resource && sameGroup(known.Resource, known.Group, w.Resource.Group) {
		return true
	}
	if w.UID == "" {
		return false
	}
	stored := view.Stored(w)
	if stored == nil || !w.is(stored) {
		return false
	}
	view.learned.Store(new(w.Resource))
	return true
}

func (view *View) certain() bool { return view.Asked && view.Mapping.Load() != nil }

// Keeps reports whether the informer keeps objects of w's resource.
func (view *View) Keeps(w *Write) bool { return view.Serves(w.Resource) || view.recognizes(w) }

// Serves reports whether the informer is for a resource, in any version and form. Without a mapping
// it compares with Guess.
func (view *View) Serves(r schema.GroupResource) bool {
	if m := view.Mapping.Load(); m != nil {
		return m.Resource.Resource == r.Resource && sameGroup(r.Resource, m.Resource.Group, r.Group)
	}
	return view.Guess.Resource == r.Resource && (view.Kind.Version == "" || sameGroup(r.Resource, view.Guess.Group, r.Group))
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
	return new(plural.GroupResource())
}

// Waiter is a Waker that knows what it waits for. Package cache implements it.
type Waiter interface {
	Waker
	// Open reports whether the wait is still needed.
	Open() bool
}

type waiter struct {
	Waiter
	write *Write // nil to wait for the informer's state only
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

// Notify calls Wake once, without locks, as soon as Open returns false. It calls Open at each Look
// and End. Unless w is nil, it also calls Open after each event of w's object, and when the store
// reaches w's version. Wake may run before Notify returns. cancel ends the wait; Wake may still be
// running then.
func (view *View) Notify(w *Write, to Waiter) (cancel func()) {
	one := &waiter{Waiter: to, write: w}
	if view.add(one) {
		view.waiters.call(one) // it may have been shown before it was added
	} else {
		to.Wake()
	}
	return func() { view.waiters.remove(one) }
}

// Look checks all waiters. Call it when the informer's state or scope has changed.
func (view *View) Look() {
	for _, one := range view.waiters.all() {
		view.waiters.call(one)
	}
}

// End calls all waiters and removes the event handler. With join, it waits for a running callback;
// a callback must not call it.
func (view *View) End(join bool) {
	w := &view.waiters
	w.mu.Lock()
	handle := w.handle
	w.handle, w.ended = nil, true
	w.mu.Unlock()
	switch { // both fail only if the informer has stopped
	case handle == nil:
	case join:
		_ = toolscache.ShutDownEventHandler(view.Shared, handle)
	default:
		_ = view.Shared.RemoveEventHandler(handle)
	}
	for _, one := range w.all() {
		if w.remove(one) {
			one.Wake()
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
func (view *View) add(one *waiter) bool {
	w, at := &view.waiters, one.at()
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.write != nil && !view.listenLocked() {
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
func (view *View) listenLocked() bool {
	w := &view.waiters
	if w.ended || w.handle != nil {
		return !w.ended
	}
	handler := toolscache.ResourceEventHandlerFuncs{AddFunc: view.event, UpdateFunc: func(_, obj any) { view.event(obj) }, DeleteFunc: view.event}
	handle, err := view.Shared.AddEventHandlerWithOptions(handler, toolscache.HandlerOptions{ResyncPeriod: new(time.Duration)})
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
	if !one.Open() && w.remove(one) {
		one.Wake()
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

func (view *View) event(obj any) {
	if view.waiters.n.Load() == 0 {
		return
	}
	if missed, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = missed.Obj
	}
	o, _ := obj.(object.Object)
	for _, one := range view.waiters.concerned(o, view.version()) {
		view.waiters.call(one)
	}
}

// concerned returns the waiters to check for an object and for the store's version.
func (w *waiters) concerned(o object.Object, version string) (some []*waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.ahead) > 0 && object.AtLeast(version, w.ahead[0].write.ResourceVersion) {
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
