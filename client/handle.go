// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// Handle reads and writes objects of one type at the API server, without a cache. Writes return the
// object as stored. You own the returned objects; they are nil with an error. A handle does not
// change its arguments.
//
// An error comes from the API server (use apierrors.IsNotFound and similar), or describes a wrong
// argument. A call with a wrong argument sends nothing. If the kind, or its subresource status, is
// not served, the error is a *[NotServedError].
type Handle[T Object] struct{ target target }

// For returns a handle for T. If the scheme lacks the type, every call returns an error.
func For[T Object](c *Client) *Handle[T] {
	t := target{client: c, form: formOf[T]()}
	if t.gvk, t.err = kindOf[T](c, schema.GroupVersionKind{}); t.err != nil {
		t.err = fmt.Errorf("client.For[%s]: %w", reflect.TypeFor[T](), t.err)
	}
	return &Handle[T]{t}
}

// ForKind returns a handle for a kind. T is one of:
//
//   - *unstructured.Unstructured
//   - *metav1.PartialObjectMetadata, for the metadata alone. It cannot create or update.
//   - the type that the scheme has for the kind.
func ForKind[T Object](c *Client, kind schema.GroupVersionKind) *Handle[T] {
	t := target{client: c, form: formOf[T]()}
	if kind.Kind == "" || kind.Version == "" {
		t.err = fmt.Errorf("the kind is %q in version %q; name both", kind.Kind, kind.Version)
	} else {
		t.gvk, t.err = kindOf[T](c, kind)
	}
	if t.err != nil {
		t.err = fmt.Errorf("client.ForKind[%s]: %w", reflect.TypeFor[T](), t.err)
	}
	return &Handle[T]{t}
}

func kindOf[T Object](c *Client, want schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	if c == nil {
		return want, errors.New("the client is nil; client.New makes one")
	}
	if reflect.TypeFor[T]().Kind() != reflect.Pointer {
		return want, errors.New("give a pointer to an API type, such as *corev1.Pod")
	}
	if formOf[T]() != typed {
		if want.Empty() {
			return want, errors.New("the type has no kind; give the Go type of a kind, or name the kind with client.ForKind")
		}
		return want, nil
	}
	kinds, err := object.Kinds(c.scheme, newObject[T]())
	switch {
	case err != nil:
		return want, err
	case want.Empty():
		return kinds[0], nil
	case !slices.Contains(kinds, want):
		return want, fmt.Errorf("the type is %s, not %s", said(kinds[0]), said(want))
	}
	return want, nil
}

// Served asks the API server whether it serves the kind now. It returns nil, a *[NotServedError],
// or the error of the request.
func (h *Handle[T]) Served(ctx context.Context) error {
	if h.target.err != nil {
		return h.target.err
	}
	h.target.client.Forget(h.target.gvk)
	_, err := h.target.client.Mapping(ctx, h.target.gvk)
	return err
}

// GetLive reads one object from the API server.
func (h *Handle[T]) GetLive(ctx context.Context, key types.NamespacedName) (T, error) {
	return send[T](ctx, h.target, getting, key, &metav1.GetOptions{}, nil)
}

// Create creates the object. If the name is taken, IsAlreadyExists is true for the error.
func (h *Handle[T]) Create(ctx context.Context, obj T, options ...Option) (T, error) {
	return h.write(ctx, creating, "", obj, options)
}

// Update replaces the object, except its status. If its resourceVersion is not the newest, the
// error is a conflict.
func (h *Handle[T]) Update(ctx context.Context, obj T, options ...Option) (T, error) {
	return h.write(ctx, updating, "", obj, options)
}

// UpdateStatus is Update for the status.
func (h *Handle[T]) UpdateStatus(ctx context.Context, obj T, options ...Option) (T, error) {
	return h.write(ctx, updating, "status", obj, options)
}

func (h *Handle[T]) write(ctx context.Context, v verb, subresource string, obj T, options []Option) (T, error) {
	t := h.target
	t.subresource = subresource
	c, err := t.call(v, options)
	if err != nil {
		return *new(T), err
	}
	if err := t.check(v, obj); err != nil {
		return *new(T), err
	}
	key := ObjectKeyFromObject(obj)
	if v == creating && key.Name == "" {
		key.Name = obj.GetGenerateName()
	}
	if t.form == inMetadata {
		return *new(T), fmt.Errorf("%s: a handle of metadata has no whole object to send; use Patch or Apply, or a handle of the whole kind", t.doing(v, key))
	}
	body := withKind(obj, t.gvk)
	if c.trace != "" {
		body = body.DeepCopyObject().(Object) //nolint:forcetypeassert // a copy of an Object
		setTrace(body, c.trace)
	}
	o := c.write // a copy, so that c stays off the heap
	return send[T](ctx, t, v, key, &o, body)
}

// withKind returns a shallow copy of an object, with its kind. The encoder writes the kind into
// what it encodes, which may be an object that others read.
func withKind(obj Object, gvk schema.GroupVersionKind) Object {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		u = &unstructured.Unstructured{Object: maps.Clone(u.Object)}
		u.SetGroupVersionKind(gvk)
		return u
	}
	value := reflect.New(reflect.TypeOf(obj).Elem())
	value.Elem().Set(reflect.ValueOf(obj).Elem())
	copied, _ := value.Interface().(Object)
	copied.GetObjectKind().SetGroupVersionKind(gvk)
	return copied
}

// Patch changes the object. pt is types.JSONPatchType, MergePatchType or StrategicMergePatchType.
// For server-side apply use Apply, for subresources [SubresourceOf]. [PatchFrom] computes the
// patch.
func (h *Handle[T]) Patch(ctx context.Context, key types.NamespacedName, pt types.PatchType, data []byte, options ...Option) (T, error) {
	c, err := h.target.patchCall(key, pt, options)
	if err != nil {
		return *new(T), err
	}
	return sendPatch[T](ctx, h.target, patching, key, pt, data, c)
}

// PatchStatus is Patch for the status.
func (h *Handle[T]) PatchStatus(ctx context.Context, key types.NamespacedName, pt types.PatchType, data []byte, options ...Option) (T, error) {
	t := h.target
	t.subresource = "status"
	c, err := t.patchCall(key, pt, options)
	if err != nil {
		return *new(T), err
	}
	return sendPatch[T](ctx, t, patching, key, pt, data, c)
}

// Delete returns once the API server has accepted the request. The garbage collector deletes
// dependents later, unless [Propagation] changes that. See also [Preconditions] and [GracePeriod].
func (h *Handle[T]) Delete(ctx context.Context, key types.NamespacedName, options ...Option) error {
	c, err := h.target.call(deleting, options)
	if err != nil {
		return err
	}
	r, err := h.target.request(ctx, deleting, key, &metav1.GetOptions{}, &c.delete)
	if err != nil {
		return err
	}
	if err := r.Do(ctx).Error(); err != nil {
		return h.target.explain(ctx, deleting, key, err)
	}
	return nil
}

// Prune deletes, and returns, those objects that owner controls (metav1.IsControlledBy) and for
// which keep returns false. It ignores objects in deletion and objects of other owners, so the list
// may have any objects, cached or live.
//
// Each delete has the UID as precondition. Objects that are gone or were replaced are no errors,
// and are not returned. If a delete fails, the others are still tried, and the errors are joined;
// each names its object. Prune stops when ctx ends.
func (h *Handle[T]) Prune(ctx context.Context, owner metav1.Object, objects []T, keep func(T) bool, options ...Option) (deleted []T, err error) {
	switch {
	case h.target.err != nil:
		return nil, h.target.err
	case argument.IsNil(owner) || owner.GetUID() == "":
		return nil, fmt.Errorf("prune %s: the owner is nil, or has no UID; give one that was read", h.target.gvk.Kind)
	case keep == nil:
		return nil, fmt.Errorf("prune %s: keep is nil; to delete all, give a func that returns false", h.target.gvk.Kind)
	}
	if _, err := h.target.call(deleting, options); err != nil {
		return nil, err
	}
	var failed []error
	for _, obj := range objects {
		if argument.IsNil(obj) || !metav1.IsControlledBy(obj, owner) || obj.GetDeletionTimestamp() != nil || keep(obj) {
			continue
		}
		if ctx.Err() != nil {
			return deleted, errors.Join(append(failed, fmt.Errorf("prune %s: %w", h.target.gvk.Kind, context.Cause(ctx)))...)
		}
		err := h.Delete(ctx, ObjectKeyFromObject(obj), append(slices.Clone(options), Preconditions(obj.GetUID(), ""))...)
		switch {
		case err == nil:
			deleted = append(deleted, obj)
		case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			failed = append(failed, fmt.Errorf("prune %s %s: %w", h.target.gvk.Kind, ObjectKeyFromObject(obj), err))
		}
	}
	return deleted, errors.Join(failed...)
}
