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

	"github.com/setpoint-dev/setpoint/cache/internal/access"
	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/hook"
)

// Handle reads objects of one type and scope from the cache. Its reads return copies, which you may
// change. As in client-go informers, the TypeMeta of typed objects is empty; use GroupVersionKind.
type Handle[T Object] struct{ handle handle }

// handle is a Handle without the type of its objects. It is compiled once; generic code is compiled
// in each package that uses a Handle.
type handle struct {
	of       reflect.Type // of the objects
	cache    *Cache
	gvk      schema.GroupVersionKind
	group    *group
	resync   time.Duration
	shared   bool         // reads return the stored objects
	released *atomic.Bool // shared with views
	err      error        // of every read
	alone    bool         // Adopt got no cache, which would report err
}

// For declares that the cache keeps all objects of type T, within the defaults of [Options]. It
// makes no request. Handles of one scope share one informer. If the scheme lacks the type or its
// list type, Validate, the manager's Run and every read return an error.
func For[T Object](c *Cache) *Handle[T] {
	return &Handle[T]{declare(c, Scope{}, reflect.TypeFor[T](), "cache.For")}
}

// ForScope is For for a part of the objects, or for unstructured objects or metadata.
func ForScope[T Object](c *Cache, s Scope) *Handle[T] {
	return &Handle[T]{declare(c, s, reflect.TypeFor[T](), "cache.ForScope")}
}

func declare(c *Cache, s Scope, t reflect.Type, who string) handle {
	h := handle{of: t, cache: c, released: &atomic.Bool{}}
	fail := func(err error) handle {
		h.err = fmt.Errorf("%s[%s]: %w", who, t, err)
		c.Reject(h.err)
		return h
	}
	if c.backend == nil {
		return fail(errors.New("the cache has no Backend to list and watch with; give cache.New a client, or adopt an informer of cache/factory"))
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
	s = c.options.complete(s, example, usualStorage(gvk, f, example))
	if f != listwatch.Typed {
		example.GetObjectKind().SetGroupVersionKind(gvk)
	}
	h.gvk, h.resync, h.group = gvk, s.Resync, newGroup(c, s.key(gvk, f), s, func(k key) *informer { return newInformer(c.environment, k, s, example) })
	return h
}

func (s Scope) example(scheme *runtime.Scheme, t reflect.Type) (Object, error) {
	if t != reflect.TypeFor[Object]() || s.Kind.Kind == "" {
		return exampleOf(t)
	}
	obj, err := scheme.New(s.Kind)
	if err != nil {
		return nil, fmt.Errorf("the scheme does not know cache.Scope.Kind; add its package with AddToScheme: %w", err)
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
	return nil, errors.New("T must be a pointer to an API type, such as *corev1.Pod")
}

// Release gives the handle's informers back. An informer without handles and subscriptions stops.
// Later reads return an error, also of views that Shared returned. Subscriptions stay until they
// are closed. A second call does nothing.
func (h *Handle[T]) Release() { h.handle.release() }

func (h *handle) release() {
	if h.err == nil && !h.released.Swap(true) {
		h.group.letGo()
	}
}

func (h *handle) usable() error {
	if h.err != nil {
		return h.err
	}
	if h.released.Load() {
		return fmt.Errorf("the handle for %s was released; declare another with cache.For", h.group.key.kind())
	}
	if why := h.cache.retired.Load(); why != nil {
		return fmt.Errorf("%s: %w", h.group, *why)
	}
	return nil
}

// Shared returns a view of the handle whose reads return the cached objects. Do not change them:
// they are read concurrently.
func (h *Handle[T]) Shared() *Handle[T] {
	view := *h
	view.handle.shared = true
	return &view
}

// OwnerRef returns a controlling owner reference to obj, which must come from the API server. An
// object with it is garbage-collected after obj, and a foreground deletion of obj waits for it.
func (h *Handle[T]) OwnerRef(obj T) *metav1ac.OwnerReferenceApplyConfiguration {
	return h.handle.ownerRef(obj)
}

func (h *handle) ownerRef(obj Object) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().
		WithAPIVersion(h.gvk.GroupVersion().String()).WithKind(h.gvk.Kind).
		WithName(obj.GetName()).WithUID(obj.GetUID()).
		WithController(true).WithBlockOwnerDeletion(true)
}

// Validate returns the mistake in an Adopt without a cache. The Validate of a cache reports the
// mistakes in all other handles.
func (h *Handle[T]) Validate() error {
	if h.handle.alone {
		return h.handle.err
	}
	return nil
}

// WaitForSync returns nil once the initial list and all slots of the scope are in the cache. If ctx
// ends or the cache stops before, the error describes the informer's state. If the kind is not
// served, meta.IsNoMatchError is true for it.
func (h *Handle[T]) WaitForSync(ctx context.Context) error {
	return h.handle.await(ctx, (*informer).hasWanted)
}

// Settled is WaitForSync, but also returns nil once State has the reason why the list fails.
func (h *Handle[T]) Settled(ctx context.Context) error {
	return h.handle.await(ctx, (*informer).settled)
}

// WaitForSome is WaitForSync for a scope of several namespaces or names. It returns nil once each
// of them is synced or has failed, for example because access is forbidden, and at least one is
// synced. Stale names the failed ones.
func (h *Handle[T]) WaitForSome(ctx context.Context) error { return h.handle.awaitSome(ctx) }

func (h *handle) awaitSome(ctx context.Context) error {
	if err := h.usable(); err != nil {
		return err
	}
	return h.group.awaitSome(ctx)
}

func (h *handle) await(ctx context.Context, over func(*informer) bool) error {
	if err := h.usable(); err != nil {
		return err
	}
	return h.group.await(ctx, over)
}

// Stale returns nil while the cache follows the API server, else the reason why reads may be old or
// fail. If the kind is not served (any more), meta.IsNoMatchError is true for it.
func (h *Handle[T]) Stale() error { return h.handle.stale() }

func (h *handle) stale() error {
	if err := h.usable(); err != nil {
		return err
	}
	if err := h.group.mistake(); err != nil {
		return err
	}
	return h.group.behind()
}

// State returns the state of the informer; see hook.InformerState for a handle that has several. It
// walks over all names to count the objects, and estimates their size from a sample.
func (h *Handle[T]) State() hook.InformerState { return h.handle.state() }

func (h *handle) state() hook.InformerState {
	switch err := h.usable(); {
	case h.err != nil:
		return hook.InformerState{Kind: h.of.String(), Phase: hook.Failing, Err: h.err}
	case err != nil:
		return hook.InformerState{Kind: h.group.key.kind(), Phase: hook.Stopped, Err: err}
	}
	return h.group.state(true)
}

// Resync returns how often the handle's sources deliver every object again. 0 is never.
func (h *Handle[T]) Resync() time.Duration { return h.handle.resync }

// GroupVersionKind returns the kind of the objects.
func (h *Handle[T]) GroupVersionKind() schema.GroupVersionKind { return h.handle.gvk }

// Namespaced reports whether the kind is namespaced. It makes no request, and returns an error
// until the kind is first found at the API server.
func (h *Handle[T]) Namespaced() (bool, error) { return h.handle.namespaced() }

func (h *handle) namespaced() (bool, error) {
	if h.err != nil {
		return false, h.err
	}
	m := h.group.mapping()
	if m == nil && h.group.key.foreign != nil {
		return false, fmt.Errorf("it is not known (yet) whether %s is namespaced; set cache.AdoptOptions.Scope", h.gvk.Kind)
	}
	if m == nil {
		return false, fmt.Errorf("it is not known yet whether %s is namespaced: %w: %w", h.gvk.Kind, ErrNotSynced, reason(h.group.state(false)))
	}
	return m.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

// SharedInformer returns the handle's client-go informer, for package cache/factory only. The cache
// runs it: the result's Run methods only wait. From then on, it stops only when Cache.Run ends.
//
// If the scope has exactly one namespace or name, the result stays its informer even if the set
// changes. It is nil for none or several, after Release, and if the type cannot be cached.
func (h *Handle[T]) SharedInformer(access.Factory) toolscache.SharedIndexInformer {
	return h.handle.sharedInformer()
}

func (h *handle) sharedInformer() toolscache.SharedIndexInformer {
	if h.usable() != nil {
		return nil
	}
	members := h.group.members.Load().by
	if len(members) != 1 {
		return nil
	}
	one := h.group.first(func(*informer) bool { return true })
	i := h.cache.acquire(one.key, h.group.inform, false) // never released
	i.fixed.Store(true)
	if !i.key.records() {
		return pinned{i.shared}
	}
	i.lw.Codec().Keep()
	return pinned{goInformer{i.shared}}
}

// String returns the kind, with the scope if it is narrowed.
func (h *Handle[T]) String() string { return h.handle.String() }

func (h *handle) String() string {
	if h.group == nil {
		return h.of.String()
	}
	return h.group.String()
}
