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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// recognizes says whether an informer that was not made here, and of which no API server has said as what its kind is served,
// keeps objects of a resource: it does if it has that very one.
func (c *Copy) recognizes(w *Write) bool {
	if !c.Foreign || c.certain() {
		return false
	}
	if c.Guess.Empty() {
		c.learnKind()
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

// certain reports whether the API server has told how the kind is served.
func (c *Copy) certain() bool { return c.Asked && c.Mapping.Load() != nil }

// learnKind takes the kind of objects without a Go type from one of them.
func (c *Copy) learnKind() {
	if c.learned.Load() != nil {
		return
	}
	for _, name := range c.store().ListKeys() {
		obj, _, err := c.store().GetByKey(name)
		if u, ok := obj.(*unstructured.Unstructured); ok && err == nil {
			c.learned.CompareAndSwap(nil, UsualPlural(u.GroupVersionKind()))
			return
		}
	}
}

// Keeps reports whether the informer keeps objects of the resource of a write.
func (c *Copy) Keeps(w *Write) bool { return c.Serves(w.Resource) || c.recognizes(w) }

// Serves reports whether the informer is for a resource, in any version and form. Before the API server has said as what the kind
// is served, the usual plural is taken.
func (c *Copy) Serves(r schema.GroupResource) bool {
	if m := c.Mapping.Load(); m != nil {
		return m.Resource.Resource == r.Resource && sameGroup(r.Resource, m.Resource.Group, r.Group)
	}
	return c.Guess.Resource == r.Resource && (c.Kind.Version == "" || sameGroup(r.Resource, c.Guess.Group, r.Group))
}

// sameGroup knows that events are served, and stored once, in two groups.
func sameGroup(resource, a, b string) bool {
	const newer = "events.k8s.io"
	return a == b || resource == "events" && (a == "" && b == newer || a == newer && b == "")
}

// UsualPlural is as what a kind is served, most likely.
func UsualPlural(gvk schema.GroupVersionKind) *schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	r := plural.GroupResource()
	return &r
}
