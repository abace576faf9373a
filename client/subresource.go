// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/argument"
)

// Subresource reads and writes one subresource of a kind. Its objects often have a type of their
// own: a Scale, an Eviction, a TokenRequest. Errors, ownership and concurrency are as for a
// [Handle]. The API server refuses methods that the subresource does not have.
type Subresource[S Object] struct {
	target target
	object schema.GroupVersionKind // of S; empty if unstructured
}

// SubresourceOf returns a handle for a subresource of h's kind. S must be the API server's type for
// it, or *unstructured.Unstructured. For the status, [Handle] has UpdateStatus and ApplyStatus.
func SubresourceOf[S, T Object](h *Handle[T], name string) *Subresource[S] {
	s := &Subresource[S]{target: h.target}
	s.target.subresource, s.target.form = name, formOf[S]()
	if s.target.err != nil {
		return s
	}
	var err error
	if name == "" {
		err = errors.New("the name is empty")
	} else if s.target.form != inUnstructured {
		s.object, err = kindOf[S](h.target.client, schema.GroupVersionKind{})
	}
	if err != nil {
		s.target.err = fmt.Errorf("client.SubresourceOf[%s]: %w", reflect.TypeFor[S](), err)
	}
	return s
}

// Get reads the subresource of one object.
func (s *Subresource[S]) Get(ctx context.Context, key types.NamespacedName) (S, error) {
	if _, err := s.kind(ctx); err != nil {
		return *new(S), err
	}
	return send[S](ctx, s.target, getting, key, &metav1.GetOptions{}, nil)
}

// Create sends obj to the subresource of the object that key names, and returns the response. It is
// empty if the API server only reports success, as for an Eviction or a Binding.
func (s *Subresource[S]) Create(ctx context.Context, key types.NamespacedName, obj S, options ...Option) (S, error) {
	return s.write(ctx, creating, key, obj, options)
}

// Update replaces the subresource of the object that obj names.
func (s *Subresource[S]) Update(ctx context.Context, obj S, options ...Option) (S, error) {
	var key types.NamespacedName
	if !argument.IsNil(obj) {
		key = ObjectKeyFromObject(obj)
	}
	return s.write(ctx, updating, key, obj, options)
}

func (s *Subresource[S]) write(ctx context.Context, v verb, key types.NamespacedName, obj S, options []Option) (S, error) {
	c, err := s.target.call(v, options)
	if err != nil {
		return *new(S), err
	}
	if argument.IsNil(obj) {
		return *new(S), fmt.Errorf("%s: the object is nil", s.target.doing(v, key))
	}
	if is := ObjectKeyFromObject(obj); is.Name != "" && is.Name != key.Name || is.Namespace != "" && is.Namespace != key.Namespace {
		return *new(S), fmt.Errorf("%s: the object is called %s", s.target.doing(v, key), is)
	}
	if _, err := s.kind(ctx); err != nil {
		return *new(S), err
	}
	obj, _ = obj.DeepCopyObject().(S)
	obj.SetName(key.Name)
	obj.SetNamespace(key.Namespace)
	return send[S](ctx, s.target, v, key, &c.write, obj)
}

// Patch changes the subresource of one object. For server-side apply use Apply.
func (s *Subresource[S]) Patch(ctx context.Context, key types.NamespacedName, pt types.PatchType, data []byte, options ...Option) (S, error) {
	c, err := s.target.patchCall(key, pt, options)
	if err != nil {
		return *new(S), err
	}
	if _, err := s.kind(ctx); err != nil {
		return *new(S), err
	}
	return sendPatch[S](ctx, s.target, patching, key, pt, data, c)
}

// Apply sets the fields of the configuration as Handle.Apply does.
func (s *Subresource[S]) Apply(ctx context.Context, desired ApplyConfiguration, options ...Option) (S, error) {
	c, err := s.target.call(applying, options)
	if err != nil {
		return *new(S), err
	}
	if c.compare {
		return *new(S), fmt.Errorf("%s: client.UnlessAlready is for Handle.Apply and ApplyStatus", s.target.doing(applying, types.NamespacedName{}))
	}
	kind, err := s.kind(ctx)
	if err != nil {
		return *new(S), err
	}
	key, body, err := s.target.configuration(desired, kind)
	if err != nil {
		return *new(S), err
	}
	return sendPatch[S](ctx, s.target, applying, key, types.ApplyYAMLPatchType, body, c)
}

// kind returns the kind of the subresource. It asks twice, because a CRD may have been updated.
func (s *Subresource[S]) kind(ctx context.Context) (schema.GroupVersionKind, error) {
	if s.target.err != nil {
		return s.object, s.target.err
	}
	var r *metav1.APIResource
	for try := 0; r == nil; try++ {
		if try == 2 {
			return s.object, &NotServedError{Kind: s.target.gvk, Subresource: s.target.subresource, Host: s.target.client.config.Host}
		}
		if _, err := s.target.client.Mapping(ctx, s.target.gvk); err != nil {
			return s.object, err
		}
		if r = s.target.client.subresource(s.target.gvk, s.target.subresource); r == nil {
			s.target.client.Forget(s.target.gvk)
		}
	}
	served := schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
	if r.Version == "" { // the same as the list's
		served = s.target.gvk.GroupVersion().WithKind(r.Kind)
	}
	if !s.object.Empty() && served.GroupKind() != s.object.GroupKind() {
		return served, fmt.Errorf("the %s of %s is a %s, not a %s: use client.SubresourceOf with its type", s.target.subresource, s.target.gvk.Kind, said(served), said(s.object))
	}
	return served, nil
}
