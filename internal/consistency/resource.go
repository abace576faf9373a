// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
