// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/argument"
)

// ApplyConfiguration says which fields an object should have: a generated one, such as DeploymentApplyConfiguration of
// k8s.io/client-go/applyconfigurations/apps/v1, or what controller-gen makes of a type of your own, or
// [UnstructuredConfiguration]. It must carry the object's name, and its namespace if the kind has one. An owner reference in
// the form that it wants comes from cache.Handle.OwnerRef.
type ApplyConfiguration interface {
	GetName() *string
	GetNamespace() *string
}

// UnstructuredConfiguration makes an apply configuration of an unstructured object: it names the fields that are in it. An
// object that was read from the API server is not one; it would name all of its fields.
func UnstructuredConfiguration(u *unstructured.Unstructured) ApplyConfiguration {
	return &unstructuredConfiguration{u}
}

type unstructuredConfiguration struct{ u *unstructured.Unstructured }

func (c *unstructuredConfiguration) GetName() *string {
	return c.text((*unstructured.Unstructured).GetName)
}

func (c *unstructuredConfiguration) GetNamespace() *string {
	return c.text((*unstructured.Unstructured).GetNamespace)
}

func (c *unstructuredConfiguration) GetKind() *string {
	return c.text((*unstructured.Unstructured).GetKind)
}

func (c *unstructuredConfiguration) GetAPIVersion() *string {
	return c.text((*unstructured.Unstructured).GetAPIVersion)
}

func (c *unstructuredConfiguration) text(get func(*unstructured.Unstructured) string) *string {
	if c.u == nil {
		return nil
	}
	s := get(c.u)
	return &s
}

// MarshalJSON implements json.Marshaler.
func (c *unstructuredConfiguration) MarshalJSON() ([]byte, error) {
	if len(c.u.GetManagedFields()) > 0 {
		return nil, errors.New("it has managedFields: give only the fields that are wanted, not an object that was read")
	}
	return json.Marshal(c.u.Object)
}

// Apply creates the object or brings the fields that the configuration names to their value, by server-side apply, and
// returns the object as stored. Fields that this field owner applied before and no longer names are removed. Conflicts
// with other field owners are forced, since a controller is the authority on what it applies. With [UnlessAlready] it is not
// sent when it would change nothing.
func (h *Handle[T]) Apply(ctx context.Context, desired ApplyConfiguration, options ...Option) (T, error) {
	return h.apply(ctx, desired, "", options)
}

// ApplyStatus does the same with the object's status. The object must exist. Where the kind has no status subresource, the
// error is a *[NotServedError].
func (h *Handle[T]) ApplyStatus(ctx context.Context, desired ApplyConfiguration, options ...Option) (T, error) {
	return h.apply(ctx, desired, "status", options)
}

func (h *Handle[T]) apply(ctx context.Context, desired ApplyConfiguration, subresource string, options []Option) (T, error) {
	c, err := h.call(applying, "apply", options)
	if err != nil {
		return *new(T), err
	}
	key, body, err := h.configuration(desired, h.gvk.Kind, h.gvk.GroupVersion().String())
	if err != nil {
		return *new(T), err
	}
	m, err := h.mapping(ctx, key.Namespace)
	if err != nil {
		return *new(T), fmt.Errorf("apply %s: %w", key.Name, err)
	}
	w, err := h.dial(h.target, m.Resource, key.Namespace)
	if err != nil {
		return *new(T), err
	}
	a, err := newApplication[T](h.target, c, key, subresource, body)
	if err != nil {
		return *new(T), err
	}
	if a.done() {
		h.skipped(ctx, m.Resource, subresource)
		return c.already.DeepCopyObject().(T), nil //nolint:forcetypeassert // newApplication has seen it
	}
	var subresources []string
	if subresource != "" {
		subresources = append(subresources, subresource)
	}
	obj, err := w.Patch(ctx, key.Name, types.ApplyYAMLPatchType, body, c.apply(), subresources...)
	if err != nil {
		return h.answer(ctx, obj, h.sized("apply", key, err), subresource)
	}
	a.remember(obj)
	return obj, nil
}

// configuration reads an apply configuration of a kind.
func (t target) configuration(desired ApplyConfiguration, kind, apiVersion string) (types.NamespacedName, []byte, error) {
	var key types.NamespacedName
	if argument.IsNil(desired) || desired.GetName() == nil || *desired.GetName() == "" {
		return key, nil, fmt.Errorf("apply %s: the configuration has no name", t.gvk.Kind)
	}
	key.Name = *desired.GetName()
	if ns := desired.GetNamespace(); ns != nil {
		key.Namespace = *ns
	}
	if k, ok := desired.(interface{ GetKind() *string }); ok && k.GetKind() != nil && *k.GetKind() != kind {
		return key, nil, fmt.Errorf("apply %s: the configuration is of a %s, not of a %s", key.Name, *k.GetKind(), kind)
	}
	if v, ok := desired.(interface{ GetAPIVersion() *string }); ok && v.GetAPIVersion() != nil && *v.GetAPIVersion() != apiVersion {
		return key, nil, fmt.Errorf("apply %s: the configuration is of version %s, not of %s", key.Name, *v.GetAPIVersion(), apiVersion)
	}
	body, err := json.Marshal(desired)
	if err != nil {
		return key, nil, fmt.Errorf("apply %s: %w", key.Name, err)
	}
	return key, body, nil
}
