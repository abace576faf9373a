// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/argument"
)

// Watched declares an informer that no cache knows of, so that a controller that watches it waits until it shows what was
// written. WatchedInformer makes one. It cannot be read.
//
// Nobody says what the informer lists. It is taken to keep the objects of one resource, wherever they are: that of its Go type,
// if client-go's scheme knows it; else any of the usual plural of the type's name, in whichever group; and of objects without a
// Go type, that of the first one in its store. A write of an object that is in the store, with its UID, says for certain. Where
// its list options narrow it to a namespace or by selectors, a write of what they leave out is waited for in vain, until
// the bound: use a handle of ForScope there, which knows its scope.
type Watched struct{ group *group }

// WatchedInformer declares an informer of objects of type T. It starts nothing: an event handler is added to the informer when
// something is waited for, and taken off by Release.
func WatchedInformer[T Object](informer toolscache.SharedIndexInformer) *Watched {
	if argument.IsNil(informer) {
		return nil
	}
	c, t := New(nil, Options{}), reflect.TypeFor[T]()
	k := key{form: formOf(t), foreign: &foreign{shared: informer, of: t}}
	if t.Kind() == reflect.Pointer && k.form == typed {
		if example, ok := reflect.New(t.Elem()).Interface().(T); ok {
			k.gvk, _ = c.kindOf(example, schema.GroupVersionKind{})
		}
		if k.gvk.Empty() {
			k.gvk.Kind = t.String() // it is only for reports
		}
	}
	return &Watched{newGroup(c, k, Scope{}, nil)}
}

// Release takes the event handler off the informer, and waits for a callback of it that is running. Nothing is waited for from then
// on. It must be called once.
func (w *Watched) Release() {
	if w == nil {
		return
	}
	for _, i := range w.group.members.Load().by {
		i.waiters.end(true)
	}
	w.group.letGo()
}

func (w *Watched) scope() *group {
	if w == nil {
		return nil
	}
	return w.group
}

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
