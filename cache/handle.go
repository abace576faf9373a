// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/hook"
)

// Object is a pointer to an API type, such as *appsv1.Deployment.
type Object interface {
	metav1.Object
	runtime.Object
}

// Handle reads objects of one type from the local copy. It is safe for concurrent use. What it returns are copies: they
// belong to the caller. Their TypeMeta is empty, as in every informer; GroupVersionKind says the kind.
type Handle[T Object] struct {
	cache    *Cache
	gvk      schema.GroupVersionKind
	informer *informer
	err      error // why the type cannot be cached; each read returns it
}

// For declares that objects of type T are to be kept, and returns a handle for them. All handles of one type share one
// informer. It makes no request. A type that the scheme does not know, or whose list type it does not know, is reported by
// Validate, by the manager's Run and by every read.
func For[T Object](c *Cache) *Handle[T] {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Pointer {
		return &Handle[T]{cache: c, err: c.reject(fmt.Errorf("cache.For[%s]: give a pointer to an API type, such as *corev1.Pod", t))}
	}
	example := reflect.New(t.Elem()).Interface().(T) //nolint:forcetypeassert // a pointer to T's element is a T
	if _, anyKind := any(example).(runtime.Unstructured); anyKind {
		return &Handle[T]{cache: c, err: c.reject(fmt.Errorf("cache.For[%s]: the type says no kind; give the Go type of one", t))}
	}
	kinds, _, err := c.backend.Scheme().ObjectKinds(example)
	if err != nil {
		return &Handle[T]{cache: c, err: c.reject(fmt.Errorf("cache.For[%s]: the scheme does not know the type; add its package with AddToScheme: %w", t, err))}
	}
	if list := listKind(kinds[0]); !c.backend.Scheme().Recognizes(list) {
		return &Handle[T]{cache: c, err: c.reject(fmt.Errorf("cache.For[%s]: the scheme knows the type but not %s, which lists need; add it to the scheme", t, list.Kind))}
	}
	return &Handle[T]{cache: c, gvk: kinds[0], informer: c.informerFor(kinds[0], example)}
}

// Get returns a copy of one object. An object that is not there is an error for which apierrors.IsNotFound is true. It waits
// for the initial list until ctx ends. In a Reconcile that is when the grace time of a stop is over, so a kind that is not
// served would hold the worker until then: declare what is read, by Watch or Reads of the controller, and workers start later.
func (h *Handle[T]) Get(ctx context.Context, key types.NamespacedName) (T, error) {
	if err := h.WaitForSync(ctx); err != nil {
		return *new(T), fmt.Errorf("get %s %s: %w", h.gvk.Kind, key, err)
	}
	if err := h.fits(key.Namespace, true); err != nil {
		return *new(T), fmt.Errorf("get %s: %w", key.Name, err)
	}
	name := key.Name
	if key.Namespace != "" {
		name = key.Namespace + "/" + key.Name
	}
	obj, found, err := h.informer.shared.GetIndexer().GetByKey(name)
	if err != nil {
		return *new(T), fmt.Errorf("get %s %s: %w", h.gvk.Kind, key, err)
	}
	if !found {
		return *new(T), apierrors.NewNotFound(h.resource(), key.Name)
	}
	return copyOf[T](obj), nil
}

// ListOptions narrows a List. The zero value is everything.
type ListOptions struct {
	// Namespace to list. Default: all.
	Namespace string
	// Selector of labels. Default: all.
	Selector labels.Selector
}

// List returns copies of the objects, in no particular order. It waits for the initial list until ctx ends, as Get does.
func (h *Handle[T]) List(ctx context.Context, o ListOptions) ([]T, error) {
	if err := h.WaitForSync(ctx); err != nil {
		return nil, fmt.Errorf("list %s: %w", h.gvk.Kind, err)
	}
	if err := h.fits(o.Namespace, false); err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	if o.Selector == nil {
		o.Selector = labels.Everything()
	}
	var list []T
	err := toolscache.ListAllByNamespace(h.informer.shared.GetIndexer(), o.Namespace, o.Selector, func(obj any) {
		list = append(list, copyOf[T](obj))
	})
	return list, err
}

func copyOf[T Object](obj any) T {
	return obj.(T).DeepCopyObject().(T) //nolint:forcetypeassert // the store of T's informer holds nothing else
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
	if h.err != nil {
		return h.err
	}
	select {
	case <-h.informer.synced():
		return nil
	default:
	}
	select {
	case <-h.informer.synced():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("not synced: %s: %w", h.State(), context.Cause(ctx))
	case <-h.informer.stopped:
		return fmt.Errorf("not synced, and never will be: %s", h.State())
	}
}

// State returns where the informer stands.
func (h *Handle[T]) State() hook.InformerState {
	if h.err != nil {
		return hook.InformerState{Kind: reflect.TypeFor[T]().String(), Phase: hook.Failing, Err: h.err}
	}
	return h.informer.state()
}

// GroupVersionKind returns the kind of T.
func (h *Handle[T]) GroupVersionKind() schema.GroupVersionKind { return h.gvk }

// Namespaced says whether objects of the kind live in namespaces. It asks the API server if that is not known yet.
func (h *Handle[T]) Namespaced(ctx context.Context) (bool, error) {
	if h.err != nil {
		return false, h.err
	}
	m, err := h.cache.backend.Mapping(ctx, h.gvk)
	if err != nil {
		return false, err
	}
	return m.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

// Informer returns client-go's informer underneath, for event handlers and indexers of your own. It must not be run: the
// cache does that. It is nil if the scheme does not know T.
func (h *Handle[T]) Informer() toolscache.SharedIndexInformer {
	if h.informer == nil {
		return nil
	}
	return h.informer.shared
}

// String names the kind.
func (h *Handle[T]) String() string { return h.State().Kind }

// fits says what is wrong with a namespace for the kind. It must be synced.
func (h *Handle[T]) fits(namespace string, one bool) error {
	switch namespaced := h.informer.mapping.Load().Scope.Name() == meta.RESTScopeNameNamespace; {
	case namespaced && namespace == "" && one:
		return fmt.Errorf("%s is a namespaced kind: name the namespace", h.gvk.Kind)
	case !namespaced && namespace != "":
		return fmt.Errorf("%s is a cluster-scoped kind: leave the namespace empty, not %q", h.gvk.Kind, namespace)
	}
	return nil
}

// resource names the kind's resource in errors. It must be synced.
func (h *Handle[T]) resource() schema.GroupResource {
	return h.informer.mapping.Load().Resource.GroupResource()
}
