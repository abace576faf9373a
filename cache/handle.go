// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/listwatch"
)

// Handle reads objects of one type and scope from the local copy. It is safe for concurrent use. What it returns are copies:
// they belong to the caller. The TypeMeta of typed objects is empty, as in every informer; GroupVersionKind says the kind.
type Handle[T Object] struct {
	cache    *Cache
	gvk      schema.GroupVersionKind
	group    *group
	resync   time.Duration
	shared   bool         // reads return what the store holds
	released *atomic.Bool // a view shares it with its handle
	err      error        // why the type cannot be cached; each read returns it
}

// For declares that all objects of type T are to be kept, and returns a handle for them. All handles of one type and scope share
// one informer. It makes no request. A type that the scheme does not know, or whose list type it does not know, is reported by
// Validate, by the manager's Run and by every read.
func For[T Object](c *Cache) *Handle[T] { return declare[T](c, Scope{}, "cache.For") }

// ForScope is For, for a part of the objects, or for objects in another form: unstructured, or metadata only.
func ForScope[T Object](c *Cache, s Scope) *Handle[T] { return declare[T](c, s, "cache.ForScope") }

func declare[T Object](c *Cache, s Scope, who string) *Handle[T] {
	h := &Handle[T]{cache: c, resync: s.Resync, released: &atomic.Bool{}}
	t := reflect.TypeFor[T]()
	fail := func(err error) *Handle[T] {
		h.err = fmt.Errorf("%s[%s]: %w", who, t, err)
		c.Reject(h.err)
		return h
	}
	if c.backend == nil {
		return fail(errors.New("the cache has no Backend to list and watch with; give cache.New a client, or use cache.Adopt with an informer of cache/factory"))
	}
	if err := s.Validate(); err != nil {
		return fail(err)
	}
	example, err := s.example(c.backend.Scheme(), t)
	if err != nil {
		return fail(err)
	}
	gvk, err := s.kindOf(c.backend.Scheme(), example)
	if err != nil {
		return fail(err)
	}
	if s.Transform != nil {
		if err := s.Transform.check(example); err != nil {
			return fail(err)
		}
	}
	f := formOf(reflect.TypeOf(example))
	if f != listwatch.Typed {
		example.GetObjectKind().SetGroupVersionKind(gvk)
	}
	h.gvk, h.group = gvk, newGroup(c, s.key(gvk, f), s, func(k key) *informer { return newInformer(c.environment, k, s, example) })
	return h
}

// example returns an object of type t, or, if that is Object, of the type that the scheme has for Kind.
func (s Scope) example(scheme *runtime.Scheme, t reflect.Type) (Object, error) {
	if t != reflect.TypeFor[Object]() || s.Kind.Kind == "" {
		return exampleOf(t)
	}
	obj, err := scheme.New(s.Kind)
	if err != nil {
		return nil, fmt.Errorf("give cache.Scope.Kind, of a type that the scheme knows: %w", err)
	}
	o, ok := obj.(Object)
	if !ok {
		return nil, fmt.Errorf("%T has no metadata", obj)
	}
	return o, nil
}

func exampleOf(t reflect.Type) (Object, error) {
	if t.Kind() == reflect.Pointer {
		if o, ok := reflect.New(t.Elem()).Interface().(Object); ok {
			return o, nil
		}
	}
	return nil, errors.New("give a pointer to an API type, such as *corev1.Pod")
}

// Release gives the handle's informers back. An informer that nobody else has stops: its goroutines and its memory are gone soon
// after. Reads return an error from then on; subscriptions go on until they are closed. Releasing twice is the same as once, and
// a view that Shared returned is released with its handle.
func (h *Handle[T]) Release() {
	if h.err == nil && !h.released.Swap(true) {
		h.group.letGo()
	}
}

// usable returns an error after Release.
func (h *Handle[T]) usable() error {
	if h.err != nil {
		return h.err
	}
	if h.released.Load() {
		return fmt.Errorf("the handle for %s was released; declare another with cache.For", h.group.key.kind())
	}
	return nil
}

// Shared returns a view of the handle whose reads return the objects in the local copy themselves, not copies. They must not be
// changed: others read them at the same time. It saves a deep copy for each object.
func (h *Handle[T]) Shared() *Handle[T] {
	view := *h
	view.shared = true
	return &view
}

// OwnerRef returns a reference that makes obj, which must come from the API server, the controlling owner of whatever
// carries it: it is collected after obj, and a foreground deletion of obj waits for it.
func (h *Handle[T]) OwnerRef(obj T) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().
		WithAPIVersion(h.gvk.GroupVersion().String()).WithKind(h.gvk.Kind).
		WithName(obj.GetName()).WithUID(obj.GetUID()).
		WithController(true).WithBlockOwnerDeletion(true)
}

// WaitForSync returns nil once the initial list is in the local copy. If ctx ends before, the error says where the informer
// stands; if the cache stops before, that is the error.
func (h *Handle[T]) WaitForSync(ctx context.Context) error {
	if err := h.usable(); err != nil {
		return err
	}
	return h.group.await(ctx, (*informer).hasSynced)
}

// Settled returns nil once there is nothing to wait for: the initial list is in the local copy, or State says why it cannot be
// had, for now. It returns an error when ctx ends, or the cache stops, before.
func (h *Handle[T]) Settled(ctx context.Context) error {
	if err := h.usable(); err != nil {
		return err
	}
	return h.group.await(ctx, (*informer).settled)
}

// Stale returns nil while the local copy follows the API server, and otherwise why what is read may be old or cannot be read.
func (h *Handle[T]) Stale() error {
	if err := h.usable(); err != nil {
		return err
	}
	if err := h.group.mistake(); err != nil {
		return err
	}
	behind := h.group.first(func(i *informer) bool {
		phase, _, _ := i.at()
		return phase != hook.Synced
	})
	if behind == nil {
		return nil
	}
	return errors.New(behind.state().String())
}

// State returns where the informer stands; see hook.InformerState for a handle that has several. It counts the objects, which
// costs a walk over their names.
func (h *Handle[T]) State() hook.InformerState {
	switch err := h.usable(); {
	case h.err != nil:
		return hook.InformerState{Kind: reflect.TypeFor[T]().String(), Phase: hook.Failing, Err: h.err}
	case err != nil:
		return hook.InformerState{Kind: h.group.key.kind(), Phase: hook.Stopped, Err: err}
	}
	return h.group.state(true)
}

// Resync returns how often sources of the handle deliver every object again; 0 is never.
func (h *Handle[T]) Resync() time.Duration { return h.resync }

// GroupVersionKind returns the kind of T.
func (h *Handle[T]) GroupVersionKind() schema.GroupVersionKind { return h.gvk }

// Namespaced says whether objects of the kind live in namespaces. It makes no request: before the kind has been found at the API
// server for the first time the answer is an error.
func (h *Handle[T]) Namespaced() (bool, error) {
	if h.err != nil {
		return false, h.err
	}
	m := h.group.mapping()
	if m == nil && h.group.key.foreign != nil {
		return false, fmt.Errorf("whether %s lives in namespaces is not known (yet); give cache.AdoptOptions.Scope", h.gvk.Kind)
	}
	if m == nil {
		return false, fmt.Errorf("whether %s lives in namespaces is not known yet: %s", h.gvk.Kind, h.group.state(false))
	}
	return m.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

// Informer returns client-go's informer underneath, for event handlers and indexers of your own. The cache runs it, and from now
// on never stops it before its own end; to run it does nothing. It is nil where the scheme does not know T, after Release, and
// where the scope has Namespaces or Names: there are several, then.
func (h *Handle[T]) Informer() toolscache.SharedIndexInformer {
	if h.usable() != nil {
		return nil
	}
	one := h.group.members.Load().everything
	if one == nil {
		return nil
	}
	return pinned{h.cache.acquire(one.key, h.group.inform).shared} // and never released
}

// String names the kind, and the scope if it is not everything.
func (h *Handle[T]) String() string {
	if h.group == nil {
		return reflect.TypeFor[T]().String()
	}
	return h.group.String()
}
