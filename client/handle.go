// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/gentype"
)

// Object is a pointer to an API type, such as *appsv1.Deployment.
type Object interface {
	metav1.Object
	runtime.Object
}

// Handle reads and writes objects of one type, live: nothing of it comes from a cache. For reads of what a controller
// watches use package cache. A handle is cheap and safe for concurrent use. Errors are the API server's own
// (apierrors.IsNotFound and so on work), or a *[NotServedError], or one sentence about what was given.
type Handle[T Object] struct {
	client *Client
	gvk    schema.GroupVersionKind
	err    error // why the type cannot be used; each call returns it
}

// For returns a handle for T. It makes no request. A type that the scheme does not know is reported by every call on the
// handle.
func For[T Object](c *Client) *Handle[T] {
	gvk, err := kindOf[T](c.scheme)
	return &Handle[T]{client: c, gvk: gvk, err: err}
}

func kindOf[T Object](s *runtime.Scheme) (schema.GroupVersionKind, error) {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Pointer {
		return schema.GroupVersionKind{}, fmt.Errorf("client.For[%s]: give a pointer to an API type, such as *corev1.Pod", t)
	}
	if _, anyKind := any(newObject[T]()).(runtime.Unstructured); anyKind {
		return schema.GroupVersionKind{}, fmt.Errorf("client.For[%s]: the type says no kind; give the Go type of one", t)
	}
	kinds, _, err := s.ObjectKinds(newObject[T]())
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("client.For[%s]: the scheme does not know the type; add its package with AddToScheme: %w", t, err)
	}
	return kinds[0], nil
}

func newObject[T Object]() T {
	return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T) //nolint:forcetypeassert // T is a pointer type, seen by kindOf
}

// Served asks the API server whether it serves the kind now: nil, a *[NotServedError], or why it cannot be known.
func (h *Handle[T]) Served(ctx context.Context) error {
	if h.err != nil {
		return h.err
	}
	h.client.Forget(h.gvk)
	_, err := h.client.Mapping(ctx, h.gvk)
	return err
}

// GetLive reads one object from the API server.
func (h *Handle[T]) GetLive(ctx context.Context, key types.NamespacedName) (T, error) {
	c, err := h.typed(ctx, key.Namespace)
	if err != nil {
		return *new(T), err
	}
	return c.Get(ctx, key.Name, metav1.GetOptions{})
}

// Create creates the object and returns it as stored.
func (h *Handle[T]) Create(ctx context.Context, obj T) (T, error) {
	c, err := h.typedFor(ctx, "create", obj)
	if err != nil {
		return *new(T), err
	}
	return c.Create(ctx, obj, metav1.CreateOptions{FieldManager: h.client.fieldOwner})
}

// Update replaces the object, status excepted, and returns it as stored. The API server refuses it (conflict) if the
// object's resourceVersion is no longer the newest.
func (h *Handle[T]) Update(ctx context.Context, obj T) (T, error) {
	c, err := h.typedFor(ctx, "update", obj)
	if err != nil {
		return *new(T), err
	}
	return c.Update(ctx, obj, metav1.UpdateOptions{FieldManager: h.client.fieldOwner})
}

// UpdateStatus replaces the object's status, and returns the object as stored.
func (h *Handle[T]) UpdateStatus(ctx context.Context, obj T) (T, error) {
	c, err := h.typedFor(ctx, "update the status of", obj)
	if err != nil {
		return *new(T), err
	}
	return c.UpdateStatus(ctx, obj, metav1.UpdateOptions{FieldManager: h.client.fieldOwner})
}

// Patch changes the object, or the named subresource of it, and returns it as stored. For server-side apply use Apply.
func (h *Handle[T]) Patch(ctx context.Context, key types.NamespacedName, pt types.PatchType, patch []byte, subresources ...string) (T, error) {
	c, err := h.typed(ctx, key.Namespace)
	if err != nil {
		return *new(T), err
	}
	return c.Patch(ctx, key.Name, pt, patch, metav1.PatchOptions{FieldManager: h.client.fieldOwner}, subresources...)
}

// Delete deletes the object in the background: it returns when the API server has taken the request, and what the object
// owns is collected later. With a precondition the object is only deleted while it is that very one.
func (h *Handle[T]) Delete(ctx context.Context, key types.NamespacedName, preconditions ...metav1.Preconditions) error {
	c, err := h.typed(ctx, key.Namespace)
	if err != nil {
		return err
	}
	background := metav1.DeletePropagationBackground
	o := metav1.DeleteOptions{PropagationPolicy: &background}
	for i := range preconditions {
		o.Preconditions = &preconditions[i]
	}
	return c.Delete(ctx, key.Name, o)
}

// typedFor is typed, in the namespace of an object that may be nil.
func (h *Handle[T]) typedFor(ctx context.Context, what string, obj T) (*gentype.Client[T], error) {
	if h.err == nil && isNil(obj) {
		return nil, fmt.Errorf("%s %s: the object is nil", what, h.gvk.Kind)
	}
	if h.err != nil {
		return nil, h.err
	}
	return h.typed(ctx, obj.GetNamespace())
}

// isNil says whether v is nil or a nil pointer.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}

// typed is client-go's own client for T in one namespace.
func (h *Handle[T]) typed(ctx context.Context, namespace string) (*gentype.Client[T], error) {
	m, err := h.mapping(ctx, namespace)
	if err != nil {
		return nil, err
	}
	r, err := h.client.RESTClient(h.gvk)
	if err != nil {
		return nil, err
	}
	return gentype.NewClient(m.Resource.Resource, r, h.client.params, namespace, newObject[T]), nil
}

func (h *Handle[T]) mapping(ctx context.Context, namespace string) (*meta.RESTMapping, error) {
	if h.err != nil {
		return nil, h.err
	}
	m, err := h.client.Mapping(ctx, h.gvk)
	if err != nil {
		return nil, err
	}
	switch namespaced := m.Scope.Name() == meta.RESTScopeNameNamespace; {
	case namespaced && namespace == "":
		return nil, fmt.Errorf("%s is a namespaced kind: name the namespace", h.gvk.Kind)
	case !namespaced && namespace != "":
		return nil, fmt.Errorf("%s is a cluster-scoped kind: leave the namespace empty, not %q", h.gvk.Kind, namespace)
	}
	return m, nil
}
