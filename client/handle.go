// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Handle reads and writes objects of one type, live: nothing of it comes from a cache. For reads of what a controller
// watches use package cache. A handle is cheap and safe for concurrent use. Errors are the API server's own
// (apierrors.IsNotFound and so on work), or a *[NotServedError], or one sentence about what was given, in which case nothing
// was sent. Objects that are given are not changed, and objects that are returned are the caller's: nil with an error.
type Handle[T Object] struct {
	target
	dial dial[T]
}

// For returns a handle for T. It makes no request. A type that the scheme does not know is reported by every call on the
// handle.
func For[T Object](c *Client) *Handle[T] {
	t := target{client: c}
	if t.gvk, t.err = kindOf[T](c); t.err != nil {
		t.err = fmt.Errorf("client.For[%s]: %w", reflect.TypeFor[T](), t.err)
	}
	return &Handle[T]{target: t, dial: dialFor[T]()}
}

// ForKind returns a handle for a kind that T does not say: T is *unstructured.Unstructured, or *metav1.PartialObjectMetadata
// to read, patch, apply and delete objects of which only the metadata is wanted; the latter cannot create or update. For any
// other T the kind must be one that the scheme has for it. It makes no request.
func ForKind[T Object](c *Client, kind schema.GroupVersionKind) *Handle[T] {
	t := target{client: c, gvk: kind}
	if t.err = checkKind[T](c, kind); t.err != nil {
		t.err = fmt.Errorf("client.ForKind[%s]: %w", reflect.TypeFor[T](), t.err)
	}
	return &Handle[T]{target: t, dial: dialFor[T]()}
}

var errSaysNoKind = errors.New("the type says no kind; give the Go type of one, or name it with client.ForKind")

func kindOf[T Object](c *Client) (schema.GroupVersionKind, error) {
	kinds, err := kindsOf[T](c)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return kinds[0], nil
}

func kindsOf[T Object](c *Client) ([]schema.GroupVersionKind, error) {
	if c == nil {
		return nil, errors.New("the client is nil; client.New makes one")
	}
	if reflect.TypeFor[T]().Kind() != reflect.Pointer {
		return nil, errors.New("give a pointer to an API type, such as *corev1.Pod")
	}
	if anyKind[T]() {
		return nil, errSaysNoKind
	}
	kinds, _, err := c.scheme.ObjectKinds(newObject[T]())
	if err != nil {
		return nil, fmt.Errorf("the scheme does not know the type; add its package with AddToScheme: %w", err)
	}
	return kinds, nil
}

func checkKind[T Object](c *Client, kind schema.GroupVersionKind) error {
	kinds, err := kindsOf[T](c)
	switch {
	case kind.Kind == "" || kind.Version == "":
		return fmt.Errorf("the kind is %q in version %q; name both", kind.Kind, kind.Version)
	case errors.Is(err, errSaysNoKind):
		return nil
	case err != nil:
		return err
	case !slices.Contains(kinds, kind):
		return fmt.Errorf("the type is %s, not %s", said(kinds[0]), said(kind))
	}
	return nil
}

// anyKind says whether objects of any kind can be held by a T.
func anyKind[T Object]() bool {
	switch any(*new(T)).(type) {
	case *metav1.PartialObjectMetadata, *unstructured.Unstructured:
		return true
	}
	return false
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
	m, err := h.at(ctx, "get", key)
	if err != nil {
		return *new(T), err
	}
	w, err := h.dial(h.target, m.Resource, key.Namespace)
	if err != nil {
		return *new(T), err
	}
	obj, err := w.Get(ctx, key.Name, metav1.GetOptions{})
	return h.answer(ctx, obj, err, "")
}

// answer makes a nil object of an answer that is an error, and explains it.
func (h *Handle[T]) answer(ctx context.Context, obj T, err error, subresource string) (T, error) {
	if err != nil {
		return *new(T), h.explain(ctx, err, subresource)
	}
	return obj, nil
}

// Create creates the object and returns it as stored.
func (h *Handle[T]) Create(ctx context.Context, obj T, options ...Option) (T, error) {
	return h.send(ctx, creating, "create", obj, options, func(w wire[T], c call) (T, error) {
		return w.Create(ctx, obj, c.create())
	})
}

// Update replaces the object, status excepted, and returns it as stored. The API server refuses it (conflict) if the
// object's resourceVersion is no longer the newest.
func (h *Handle[T]) Update(ctx context.Context, obj T, options ...Option) (T, error) {
	return h.send(ctx, updating, "update", obj, options, func(w wire[T], c call) (T, error) {
		return w.Update(ctx, obj, c.update())
	})
}

// UpdateStatus replaces the object's status, and returns the object as stored. It is refused as Update is. Where the kind has
// no status subresource, the error is a *[NotServedError], although the API server's answer is the one for a missing object.
func (h *Handle[T]) UpdateStatus(ctx context.Context, obj T, options ...Option) (T, error) {
	return h.send(ctx, updating, updateStatus, obj, options, func(w wire[T], c call) (T, error) {
		return w.UpdateStatus(ctx, obj, c.update())
	})
}

const updateStatus = "update the status of"

// send is a write of a whole object.
func (h *Handle[T]) send(ctx context.Context, v verb, what string, obj T, options []Option, do func(wire[T], call) (T, error)) (T, error) {
	c, err := h.call(v, what, options)
	if err != nil {
		return *new(T), err
	}
	m, err := h.of(ctx, what, obj)
	if err != nil {
		return *new(T), err
	}
	w, err := h.dial(h.target, m.Resource, obj.GetNamespace())
	if err != nil {
		return *new(T), err
	}
	subresource := ""
	if what == updateStatus {
		subresource = "status"
	}
	stored, err := do(w, c)
	return h.answer(ctx, stored, h.sized(what, nameOf(obj), err), subresource)
}

// Patch changes the object and returns it as stored. The type is types.JSONPatchType,
// MergePatchType or StrategicMergePatchType. For server-side apply use Apply, for subresources
// [SubresourceOf].
func (h *Handle[T]) Patch(ctx context.Context, key types.NamespacedName, pt types.PatchType, patch []byte, options ...Option) (T, error) {
	c, err := h.call(patching, "patch", options)
	if err != nil {
		return *new(T), err
	}
	if err := checkPatchType(pt); err != nil {
		return *new(T), fmt.Errorf("patch %s %s: %w", h.gvk.Kind, strings.TrimPrefix(key.String(), "/"), err)
	}
	m, err := h.at(ctx, "patch", key)
	if err != nil {
		return *new(T), err
	}
	w, err := h.dial(h.target, m.Resource, key.Namespace)
	if err != nil {
		return *new(T), err
	}
	obj, err := w.Patch(ctx, key.Name, pt, patch, c.patch())
	return h.answer(ctx, obj, h.sized("patch", key, err), "")
}

// Delete deletes the object in the background: it returns when the API server has taken the request, and what the object
// owns is collected later. With [Preconditions] the object is only deleted while it is that very one; see [Propagation] and
// [GracePeriod], too.
func (h *Handle[T]) Delete(ctx context.Context, key types.NamespacedName, options ...Option) error {
	c, err := h.call(deleting, "delete", options)
	if err != nil {
		return err
	}
	m, err := h.at(ctx, "delete", key)
	if err != nil {
		return err
	}
	w, err := h.dial(h.target, m.Resource, key.Namespace)
	if err != nil {
		return err
	}
	return h.explain(ctx, w.Delete(ctx, key.Name, c.delete), "")
}
