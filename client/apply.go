// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/argument"
)

// ApplyConfiguration names the fields that an object should have. It is a generated type, such as
// DeploymentApplyConfiguration of k8s.io/client-go/applyconfigurations/apps/v1 or what controller-gen
// makes of your own type, or [UnstructuredConfiguration]. It must have the object's name, and the
// namespace if the kind is namespaced. cache.Handle.OwnerRef returns an owner reference in its form.
type ApplyConfiguration interface {
	GetName() *string
	GetNamespace() *string
}

// UnstructuredConfiguration returns an apply configuration with the fields of an unstructured object.
// Do not give an object that was read: it would name all of its fields.
func UnstructuredConfiguration(u *unstructured.Unstructured) ApplyConfiguration {
	c := &unstructuredConfiguration{object: u}
	c.ObjectMetaApplyConfiguration = metaac.ObjectMeta()
	if u != nil {
		c.TypeMetaApplyConfiguration = *metaac.TypeMeta().WithKind(u.GetKind()).WithAPIVersion(u.GetAPIVersion())
		c.WithName(u.GetName()).WithNamespace(u.GetNamespace())
	}
	return c
}

type unstructuredConfiguration struct {
	metaac.TypeMetaApplyConfiguration
	*metaac.ObjectMetaApplyConfiguration

	object *unstructured.Unstructured
}

// MarshalJSON implements json.Marshaler.
func (c *unstructuredConfiguration) MarshalJSON() ([]byte, error) {
	if len(c.object.GetManagedFields()) > 0 {
		return nil, errors.New("it has managedFields: give only the fields that are wanted, not an object that was read")
	}
	return json.Marshal(c.object.Object)
}

// Apply creates the object, or sets the fields that the configuration names, by server-side apply. It
// returns the object as stored. Fields that this field owner applied before and no longer names are
// removed. Conflicts with other field owners are forced. With [UnlessAlready] it is not sent when it
// would change nothing.
func (h *Handle[T]) Apply(ctx context.Context, desired ApplyConfiguration, options ...Option) (T, error) {
	return h.apply(ctx, desired, "", options)
}

// ApplyStatus is Apply for the status. The object must exist. If the kind has no status subresource,
// the error is a *[NotServedError].
func (h *Handle[T]) ApplyStatus(ctx context.Context, desired ApplyConfiguration, options ...Option) (T, error) {
	return h.apply(ctx, desired, "status", options)
}

func (h *Handle[T]) apply(ctx context.Context, desired ApplyConfiguration, subresource string, options []Option) (T, error) {
	t := h.target
	t.subresource = subresource
	c, err := t.call(applying, options)
	if err != nil {
		return *new(T), err
	}
	key, body, err := t.configuration(desired, t.gvk)
	if err != nil {
		return *new(T), err
	}
	if err := checkLive[T](t, c, key); err != nil {
		return *new(T), err
	}
	if t.applied(c, body) {
		m, err := t.mapping(ctx, applying, key.Namespace)
		if err != nil {
			return *new(T), err
		}
		t.skipped(ctx, m.Resource)
		return c.already.DeepCopyObject().(T), nil //nolint:forcetypeassert // checkLive has seen it
	}
	obj, err := sendPatch[T](ctx, t, applying, key, types.ApplyYAMLPatchType, body, c)
	if err == nil {
		t.remember(c, body, obj)
	}
	return obj, err
}

// configuration reads an apply configuration of a kind.
func (t target) configuration(desired ApplyConfiguration, kind schema.GroupVersionKind) (types.NamespacedName, []byte, error) {
	var key types.NamespacedName
	if argument.IsNil(desired) || desired.GetName() == nil || *desired.GetName() == "" {
		return key, nil, fmt.Errorf("%s: the configuration has no name", t.doing(applying, key))
	}
	key.Name = *desired.GetName()
	if ns := desired.GetNamespace(); ns != nil {
		key.Namespace = *ns
	}
	if k, ok := desired.(interface{ GetKind() *string }); ok && k.GetKind() != nil && *k.GetKind() != kind.Kind {
		return key, nil, fmt.Errorf("%s: the configuration is of a %s, not of a %s", t.doing(applying, key), *k.GetKind(), kind.Kind)
	}
	apiVersion := kind.GroupVersion().String()
	if v, ok := desired.(interface{ GetAPIVersion() *string }); ok && v.GetAPIVersion() != nil && *v.GetAPIVersion() != apiVersion {
		return key, nil, fmt.Errorf("%s: the configuration is of version %s, not of %s", t.doing(applying, key), *v.GetAPIVersion(), apiVersion)
	}
	body, err := json.Marshal(desired)
	if err != nil {
		return key, nil, fmt.Errorf("%s: %w", t.doing(applying, key), err)
	}
	return key, body, nil
}
