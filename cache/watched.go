// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// recognizes says whether an informer that was not made here, and of which no API server has said as what its kind is served,
// keeps objects of a resource: it does if it has that very one.
func (i *informer) recognizes(w *Written) bool {
	if i.key.foreign == nil || i.certain() {
		return false
	}
	if i.guess.Empty() {
		i.learnKind()
	}
	if known := i.learned.Load(); known != nil && known.Resource == w.Resource.Resource && sameGroup(known.Resource, known.Group, w.Resource.Group) {
		return true
	}
	if w.UID == "" {
		return false
	}
	stored := i.stored(w)
	if stored == nil || !w.is(stored) {
		return false
	}
	r := w.Resource
	i.learned.Store(&r)
	return true
}

// certain says whether the API server has said as what the kind is served.
func (i *informer) certain() bool { return i.cache.hasBackend() && i.mapping.Load() != nil }

// learnKind takes the kind of objects without a Go type from one of them.
func (i *informer) learnKind() {
	if i.learned.Load() != nil {
		return
	}
	for _, name := range i.shared.GetStore().ListKeys() {
		obj, _, err := i.shared.GetStore().GetByKey(name)
		if u, ok := obj.(*unstructured.Unstructured); ok && err == nil {
			i.learned.CompareAndSwap(nil, usualPlural(u.GroupVersionKind()))
			return
		}
	}
}
