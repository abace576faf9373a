// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/object"
)

type target struct {
	client      *Client
	gvk         schema.GroupVersionKind
	subresource string
	form        form
	err         error // a wiring mistake, for each call
}

func (t target) call(v verb, options []Option) (call, error) {
	if t.err != nil {
		return call{}, t.err
	}
	c := call{
		write:  metav1.PatchOptions{FieldManager: t.client.fieldOwner, FieldValidation: t.client.fieldValidation},
		delete: metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)},
	}
	if t.client.dryRun {
		c.dryRun()
	}
	if v == applying { // a controller owns the fields that it applies
		c.write.Force = new(true)
	}
	for _, o := range options {
		if o.set == nil {
			continue
		}
		if !slices.Contains(o.fits, v) {
			return call{}, fmt.Errorf("%s: this call does not take client.%s", t.doing(v, types.NamespacedName{}), o.name)
		}
		if err := o.set(&c); err != nil {
			return call{}, fmt.Errorf("%s: client.%s: %w", t.doing(v, types.NamespacedName{}), o.name, err)
		}
	}
	return c, nil
}

func (t target) doing(v verb, key types.NamespacedName) string {
	s := string(v) + " "
	if t.subresource != "" {
		s += "the " + t.subresource + " of "
	}
	s += t.gvk.Kind
	if key.Name != "" {
		s += " " + object.Name(key)
	}
	return s
}

func (t target) check(v verb, obj Object) error {
	if t.err != nil {
		return t.err
	}
	if argument.IsNil(obj) {
		return fmt.Errorf("%s: the object is nil", t.doing(v, types.NamespacedName{}))
	}
	if gvk := obj.GetObjectKind().GroupVersionKind(); !gvk.Empty() && gvk != t.gvk {
		return fmt.Errorf("%s: the object is a %s, but the handle is for %s", t.doing(v, ObjectKeyFromObject(obj)), said(gvk), said(t.gvk))
	}
	return nil
}

func said(gvk schema.GroupVersionKind) string {
	return fmt.Sprintf("%s of %s", gvk.Kind, gvk.GroupVersion())
}

var methods = map[verb]string{
	getting: http.MethodGet, listing: http.MethodGet, watching: http.MethodGet, creating: http.MethodPost, updating: http.MethodPut,
	patching: http.MethodPatch, applying: http.MethodPatch, deleting: http.MethodDelete, deletingAll: http.MethodDelete,
}

// patchBody is the body of a request that patches.
type patchBody struct {
	patchType types.PatchType
	data      []byte
}

// request returns a request with a body: an object, a patchBody or nil.
func (t target) request(ctx context.Context, v verb, key types.NamespacedName, params runtime.Object, body any) (*rest.Request, error) {
	if t.err != nil {
		return nil, t.err
	}
	if key.Name == "" && !v.collection() {
		return nil, fmt.Errorf("%s: the name is empty", t.doing(v, key))
	}
	m, err := t.mapping(ctx, v, key.Namespace)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.doing(v, key), err)
	}
	c, err := t.client.restFor(restKey{t.gvk, t.form == typed})
	if err != nil {
		return nil, err
	}
	r := c.Verb(methods[v]).NamespaceIfScoped(key.Namespace, key.Namespace != "").Resource(m.Resource.Resource)
	if !v.collection() && (v != creating || t.subresource != "") {
		r.Name(key.Name)
	}
	if t.subresource != "" {
		r.SubResource(t.subresource)
	}
	if t.form == inMetadata && v != deleting {
		r.SetHeader("Accept", acceptMetadata(v))
	}
	switch b := body.(type) {
	case nil:
	case patchBody:
		r.SetHeader("Content-Type", string(b.patchType)).Body(b.data)
	default:
		r.Body(b)
	}
	return r.SpecificallyVersionedParams(params, metav1.ParameterCodec, metav1.SchemeGroupVersion), nil
}

// acceptMetadata returns the Accept header for metadata. Without support for it, the API server
// sends whole objects.
func acceptMetadata(v verb) string {
	kind := "PartialObjectMetadata"
	if v == listing || v == deletingAll {
		kind += "List"
	}
	return runtime.ContentTypeJSON + ";as=" + kind + ";g=meta.k8s.io;v=v1," + runtime.ContentTypeJSON
}

func (t target) mapping(ctx context.Context, v verb, namespace string) (*meta.RESTMapping, error) {
	m, err := t.client.Mapping(ctx, t.gvk)
	if err != nil {
		return nil, err
	}
	switch namespaced := m.Scope.Name() == meta.RESTScopeNameNamespace; {
	case namespaced && namespace == "" && v != listing && v != watching:
		return nil, fmt.Errorf("%s is a namespaced kind: name the namespace", t.gvk.Kind)
	case !namespaced && namespace != "":
		return nil, fmt.Errorf("%s is a cluster-scoped kind: leave the namespace empty, not %q", t.gvk.Kind, namespace)
	}
	return m, nil
}

func send[T Object](ctx context.Context, t target, v verb, key types.NamespacedName, params runtime.Object, body any) (T, error) {
	r, err := t.request(ctx, v, key, params, body)
	if err != nil {
		return *new(T), err
	}
	obj := newObject[T]()
	if err := r.Do(ctx).Into(obj); err != nil {
		return *new(T), t.explain(ctx, v, key, err)
	}
	if t.form == inMetadata { // it says PartialObjectMetadata
		obj.GetObjectKind().SetGroupVersionKind(t.gvk)
	}
	return obj, nil
}

func sendPatch[T Object](ctx context.Context, t target, v verb, key types.NamespacedName, pt types.PatchType, patch []byte, c call) (T, error) {
	o := c.write // a copy, so that c stays off the heap
	return send[T](ctx, t, v, key, &o, patchBody{pt, patch})
}

func (t target) patchCall(key types.NamespacedName, pt types.PatchType, options []Option) (call, error) {
	switch pt {
	case types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType:
		return t.call(patching, options)
	case types.ApplyYAMLPatchType, types.ApplyCBORPatchType:
		return call{}, fmt.Errorf("%s: the patch type is %q, which is server-side apply; use Apply", t.doing(patching, key), pt)
	default:
		return call{}, fmt.Errorf("%s: the patch type is %q, which is unknown; use types.JSONPatchType, MergePatchType or StrategicMergePatchType",
			t.doing(patching, key), pt)
	}
}

// explain replaces an API server's error by a clearer one. A missing object and a kind or
// subresource that is not served are both a 404.
func (t target) explain(ctx context.Context, v verb, key types.NamespacedName, err error) error {
	if conflict := t.fieldConflict(v, key, err); conflict != nil {
		return conflict
	}
	if isTooLarge(err) {
		return fmt.Errorf("%s: the object is too large for the API server, which stores about 1.5 MiB at most; split it, or keep its data elsewhere: %w",
			t.doing(v, key), err)
	}
	served := func() bool { return t.subresource == "" || t.client.subresource(t.gvk, t.subresource) != nil }
	// If a custom resource lacks the subresource, the API server names the object as not found.
	if !apierrors.IsNotFound(err) || namesObject(err) && served() {
		if namesNothing(err) {
			return fmt.Errorf("%s: %w", t.doing(v, key), err)
		}
		return err
	}
	t.client.Forget(t.gvk)
	var not *NotServedError
	switch _, asked := t.client.Mapping(ctx, t.gvk); {
	case errors.As(asked, &not):
		return not
	case asked != nil:
		return fmt.Errorf("%s: the API server does not know the path; %w", t.doing(v, key), asked)
	case !served():
		return &NotServedError{Kind: t.gvk, Subresource: t.subresource, Host: t.client.config.Host}
	case apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		// It says nothing about the object, so that IsNotFound must be false.
		return fmt.Errorf("%s: the API server at %s did not know the path, and serves %s; its CRD is being changed, so try again",
			t.doing(v, key), t.client.config.Host, said(t.gvk))
	}
	return err
}

// statusOf returns the API server's Status, with Details. It is empty for other errors.
func statusOf(err error) (s metav1.Status) {
	var e apierrors.APIStatus
	if errors.As(err, &e) {
		s = e.Status()
	}
	s.Details = cmp.Or(s.Details, &metav1.StatusDetails{})
	return s
}

// namesNothing reports whether the API server's answer says neither which kind it is about nor what
// was asked, such as a 415.
func namesNothing(err error) bool {
	var s apierrors.APIStatus
	return errors.As(err, &s) && (s.Status().Details == nil || s.Status().Details.Kind == "")
}

// namesObject reports whether the API server found no such object. For an unknown path it sends no
// Status; client-go makes one with this cause.
func namesObject(err error) bool {
	return statusOf(err).Details.Name != "" && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// isTooLarge recognizes responses of the API server (413), of etcd, and of gRPC between them.
func isTooLarge(err error) bool {
	text := statusOf(err).Message
	return apierrors.IsRequestEntityTooLargeError(err) || strings.Contains(text, "etcdserver: request is too large") ||
		strings.Contains(text, "ResourceExhausted") && strings.Contains(text, "larger than max")
}
