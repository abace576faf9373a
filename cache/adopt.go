// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/argument"
)

// AdoptOptions configures Adopt. The zero value works for the types that the scheme knows.
type AdoptOptions struct {
	// Kind is the kind of the objects. Default: what the scheme says of T, which is client-go's where the cache has no Backend.
	// It is needed for *unstructured.Unstructured and *metav1.PartialObjectMetadata, and for what the scheme does not know.
	Kind schema.GroupVersionKind
	// Scope is meta.RESTScopeNamespace or meta.RESTScopeRoot: whether the objects live in namespaces. handler.Owner asks for
	// it. Default: what the API server says, which is asked while the cache runs; without a Backend it is not known.
	Scope meta.RESTScope
	// Resync is how often each source of the handle delivers every object again, unchanged, give or take a tenth. It needs no
	// resync of the informer. Default: never.
	Resync time.Duration
}

// Adopt returns a handle for the objects of an informer that somebody else made, and runs: that of the host program's
// SharedInformerFactory, of a generated factory for custom resources, or of a dynamic one (T is *unstructured.Unstructured
// then). The cache neither starts nor stops it, and asks of it nothing but AddEventHandler and AddIndexers. Release takes our
// event handlers off it; indexes stay as long as the informer, because client-go cannot take them off.
//
// Such an informer does not say why it is not synced, nor that it cannot watch any more, so State is Syncing until it is synced
// and Synced until it is stopped, and counts no lists and watches. A controller waits for it for as long as that takes. Its
// own constructor and its transform decide what is kept.
//
// A nil informer, or one that does not hold objects of type T, is an error that Validate, the manager's Run and every read
// return. Where the informer is still empty the latter shows at the first read, or, in State, when it is synced. Adopting an
// informer twice is as good as once; adopting one of the cache's own is as good as a handle for it.
func Adopt[T Object](c *Cache, informer toolscache.SharedIndexInformer, o AdoptOptions) *Handle[T] {
	h := &Handle[T]{cache: c, resync: o.Resync, released: &atomic.Bool{}}
	t := reflect.TypeFor[T]()
	fail := func(err error) *Handle[T] {
		h.err = c.reject(fmt.Errorf("cache.Adopt[%s]: %w", t, err))
		return h
	}
	if t.Kind() != reflect.Pointer {
		return fail(errors.New("give a pointer to an API type, such as *corev1.Pod"))
	}
	if argument.IsNil(informer) {
		return fail(errors.New("the informer is nil"))
	}
	if o.Resync < 0 {
		return fail(fmt.Errorf("cache.AdoptOptions.Resync is %s, it must not be negative", o.Resync))
	}
	example := reflect.New(t.Elem()).Interface().(T) //nolint:forcetypeassert // a pointer to T's element is a T
	gvk, err := c.kindOf(example, o.Kind)
	if err != nil {
		return fail(err)
	}
	f := &foreign{shared: informer, of: t}
	if err := f.misfit(); err != nil {
		return fail(err)
	}
	f.addIndexers()
	k := c.existing(key{gvk: gvk, form: formOf(t), foreign: f})
	h.gvk, h.group = gvk, newGroup(c, k, Scope{}, example)
	if o.Scope != nil {
		resource, _ := meta.UnsafeGuessKindToResource(gvk) // it is only for messages
		h.group.members.Load().everything.mapping.CompareAndSwap(nil, &meta.RESTMapping{Resource: resource, GroupVersionKind: gvk, Scope: o.Scope})
	}
	return h
}

// kindOf finds the kind of an object in the scheme, unless it is given.
func (c *Cache) kindOf(obj Object, given schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	if given.Kind != "" && given.Version != "" {
		return given, nil
	}
	if f := formOf(reflect.TypeOf(obj)); f != typed {
		return given, errors.New("the type says no kind; give cache.AdoptOptions.Kind, with its version")
	}
	kinds, _, err := c.backend.Scheme().ObjectKinds(obj)
	if err != nil {
		return given, fmt.Errorf("the scheme does not know the type; give cache.AdoptOptions.Kind, or add its package with AddToScheme: %w", err)
	}
	return kinds[0], nil
}

// existing returns the key under which the informer of a key is in the cache already, else the key itself.
func (c *Cache) existing(k key) key {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, i := range c.informers {
		if other.gvk == k.gvk && other.form == k.form && sameStore(i.shared, k.foreign.shared) {
			return other
		}
	}
	return k
}

// sameStore says whether two informers are the same, perhaps wrapped as client-go wraps them to give them types.
func sameStore(a, b toolscache.SharedIndexInformer) bool {
	one, other := reflect.ValueOf(a.GetIndexer()), reflect.ValueOf(b.GetIndexer())
	return one.Kind() == reflect.Pointer && other.Kind() == reflect.Pointer && one.Pointer() == other.Pointer()
}
