// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/setpoint-dev/setpoint/internal/argument"
)

// Subresource reads and writes one subresource of a kind. Its objects are often of a type of their own: a Scale, an Eviction, a
// TokenRequest. It goes over client-go's dynamic client, so in JSON. What holds for a [Handle] holds for it, too. Not every
// subresource can do all of these; the API server says so.
type Subresource[S Object] struct {
	parent target
	name   string
	gvk    schema.GroupVersionKind // of S; empty: unstructured
}

// SubresourceOf returns a handle for a subresource of h's kind, whose objects are S. It makes no request.
//
//	deployments := client.For[*appsv1.Deployment](c)
//	scale, err := client.SubresourceOf[*autoscalingv1.Scale](deployments, "scale").Get(ctx, key)
//
//	pods := client.For[*corev1.Pod](c)
//	_, err = client.SubresourceOf[*policyv1.Eviction](pods, "eviction").Create(ctx, key, &policyv1.Eviction{})
//
// S must be what the API server says that the subresource is, or *unstructured.Unstructured. For the status of an object
// Handle.UpdateStatus and ApplyStatus are shorter.
func SubresourceOf[S, T Object](h *Handle[T], name string) *Subresource[S] {
	s := &Subresource[S]{parent: h.target, name: name}
	if s.parent.err != nil {
		return s
	}
	var err error
	if name == "" {
		err = errors.New("the name is empty")
	} else if _, anything := any(*new(S)).(*unstructured.Unstructured); !anything {
		s.gvk, err = kindOf[S](h.client)
	}
	if err != nil {
		s.parent.err = fmt.Errorf("client.SubresourceOf[%s]: %w", reflect.TypeFor[S](), err)
	}
	return s
}

// Get reads the subresource of one object from the API server.
func (s *Subresource[S]) Get(ctx context.Context, key types.NamespacedName) (S, error) {
	r, err := s.resource(ctx, "get", key)
	if err != nil {
		return *new(S), err
	}
	u, err := r.Get(ctx, key.Name, metav1.GetOptions{}, s.name)
	return s.typed(ctx, u, err)
}

// Create sends an object to the subresource of the one that key names, and returns the answer. Where the answer is a mere
// success, as that to an Eviction or a Binding is, the result is an empty object.
func (s *Subresource[S]) Create(ctx context.Context, key types.NamespacedName, obj S, options ...Option) (S, error) {
	return s.send(ctx, creating, "create", key, obj, options, func(r dynamic.ResourceInterface, u *unstructured.Unstructured, c call) (*unstructured.Unstructured, error) {
		return r.Create(ctx, u, c.create(), s.name)
	})
}

// Update replaces the subresource of the object that obj names, and returns it as stored.
func (s *Subresource[S]) Update(ctx context.Context, obj S, options ...Option) (S, error) {
	var key types.NamespacedName
	if !argument.IsNil(obj) {
		key = keyOf(obj)
	}
	return s.send(ctx, updating, "update", key, obj, options, func(r dynamic.ResourceInterface, u *unstructured.Unstructured, c call) (*unstructured.Unstructured, error) {
		return r.Update(ctx, u, c.update(), s.name)
	})
}

func (s *Subresource[S]) send(ctx context.Context, v verb, what string, key types.NamespacedName, obj S, options []Option,
	do func(dynamic.ResourceInterface, *unstructured.Unstructured, call) (*unstructured.Unstructured, error),
) (S, error) {
	c, err := s.parent.call(v, what, options)
	if err != nil {
		return *new(S), err
	}
	if argument.IsNil(obj) {
		return *new(S), fmt.Errorf("%s the %s of %s %s: the object is nil", what, s.name, s.parent.gvk.Kind, key)
	}
	if is := keyOf(obj); is.Name != "" && is.Name != key.Name || is.Namespace != "" && is.Namespace != key.Namespace {
		return *new(S), fmt.Errorf("%s the %s of %s %s: the object is called %s", what, s.name, s.parent.gvk.Kind, key, is)
	}
	r, err := s.resource(ctx, what, key)
	if err != nil {
		return *new(S), err
	}
	u, err := s.unstructured(obj, key)
	if err != nil {
		return *new(S), err
	}
	u, err = do(r, u, c)
	return s.typed(ctx, u, err)
}

// Patch changes the subresource of one object, and returns it as stored. For server-side apply use Apply.
func (s *Subresource[S]) Patch(ctx context.Context, key types.NamespacedName, pt types.PatchType, patch []byte, options ...Option) (S, error) {
	c, err := s.parent.call(patching, "patch", options)
	if err != nil {
		return *new(S), err
	}
	if err := checkPatchType(pt); err != nil {
		return *new(S), fmt.Errorf("patch the %s of %s %s: %w", s.name, s.parent.gvk.Kind, key, err)
	}
	return s.patch(ctx, "patch", key, pt, patch, c.patch())
}

// Apply brings the fields that the configuration names to their value, as Handle.Apply does.
func (s *Subresource[S]) Apply(ctx context.Context, desired ApplyConfiguration, options ...Option) (S, error) {
	c, err := s.parent.call(applying, "apply", options)
	if err != nil {
		return *new(S), err
	}
	if c.compare {
		return *new(S), fmt.Errorf("apply the %s of %s: client.UnlessAlready is for Handle.Apply and ApplyStatus", s.name, s.parent.gvk.Kind)
	}
	kind, err := s.kind(ctx)
	if err != nil {
		return *new(S), err
	}
	key, body, err := s.parent.configuration(desired, kind.Kind, kind.GroupVersion().String())
	if err != nil {
		return *new(S), err
	}
	return s.patch(ctx, "apply", key, types.ApplyYAMLPatchType, body, c.apply())
}

func (s *Subresource[S]) patch(ctx context.Context, what string, key types.NamespacedName, pt types.PatchType, body []byte, o metav1.PatchOptions) (S, error) {
	r, err := s.resource(ctx, what, key)
	if err != nil {
		return *new(S), err
	}
	u, err := r.Patch(ctx, key.Name, pt, body, o, s.name)
	return s.typed(ctx, u, err)
}

// resource is client-go's client, if the API server serves such a subresource.
func (s *Subresource[S]) resource(ctx context.Context, what string, key types.NamespacedName) (dynamic.ResourceInterface, error) {
	m, err := s.parent.at(ctx, what, key)
	if err != nil {
		return nil, err
	}
	if _, err := s.kind(ctx); err != nil {
		return nil, err
	}
	d, err := s.parent.client.dynamicFor(s.parent.gvk)
	if err != nil {
		return nil, err
	}
	return d.Resource(m.Resource).Namespace(key.Namespace), nil
}

// kind returns of which kind the API server says the subresource is. It asks anew if it does not know of one.
func (s *Subresource[S]) kind(ctx context.Context) (schema.GroupVersionKind, error) {
	if s.parent.err != nil {
		return schema.GroupVersionKind{}, s.parent.err
	}
	c, parent := s.parent.client, s.parent.gvk
	if _, err := c.Mapping(ctx, parent); err != nil {
		return schema.GroupVersionKind{}, err
	}
	r := c.subresource(parent, s.name)
	if r == nil {
		c.Forget(parent)
		if _, err := c.Mapping(ctx, parent); err != nil {
			return schema.GroupVersionKind{}, err
		}
		if r = c.subresource(parent, s.name); r == nil {
			return schema.GroupVersionKind{}, &NotServedError{Kind: parent, Subresource: s.name, Host: c.config.Host}
		}
	}
	served := schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
	if r.Version == "" { // that of the list
		served = parent.GroupVersion().WithKind(r.Kind)
	}
	if !s.gvk.Empty() && served.GroupKind() != s.gvk.GroupKind() {
		return served, fmt.Errorf("the %s of %s is a %s, not a %s: use client.SubresourceOf with its type", s.name, parent.Kind, said(served), said(s.gvk))
	}
	return served, nil
}

// unstructured is what is sent for obj.
func (s *Subresource[S]) unstructured(obj S, key types.NamespacedName) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("the %s of %s %s: %w", s.name, s.parent.gvk.Kind, key, err)
	}
	u := (&unstructured.Unstructured{Object: content}).DeepCopy()
	if !s.gvk.Empty() {
		u.SetGroupVersionKind(s.gvk)
	}
	u.SetName(key.Name)
	u.SetNamespace(key.Namespace)
	return u, nil
}

// typed is what an answer says.
func (s *Subresource[S]) typed(ctx context.Context, u *unstructured.Unstructured, err error) (S, error) {
	if err != nil {
		return *new(S), s.parent.explain(ctx, err, s.name)
	}
	if same, ok := any(u).(S); ok {
		return same, nil
	}
	obj := newObject[S]()
	if u.GetKind() == "Status" && u.GetAPIVersion() == "v1" {
		return obj, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
		return *new(S), fmt.Errorf("the %s of %s %s: %w", s.name, s.parent.gvk.Kind, u.GetName(), err)
	}
	return obj, nil
}
