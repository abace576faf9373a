// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/gentype"
)

// ApplyConfiguration says which fields an object should have: a generated one, such as DeploymentApplyConfiguration of
// k8s.io/client-go/applyconfigurations/apps/v1, or what controller-gen makes of a type of your own. It must carry the
// object's name, and its namespace if the kind has one.
type ApplyConfiguration interface {
	GetName() *string
	GetNamespace() *string
}

// Apply creates the object or brings the fields that the configuration names to their value, by server-side apply, and
// returns the object as stored. Fields that this field owner applied before and no longer names are removed. Conflicts
// with other field owners are forced, since a controller is the authority on what it applies.
func (h *Handle[T]) Apply(ctx context.Context, desired ApplyConfiguration) (T, error) {
	c, err := h.applier(ctx, desired)
	if err != nil {
		return *new(T), err
	}
	return c.Apply(ctx, desired, h.applyOptions())
}

// ApplyStatus does the same with the object's status. The object must exist.
func (h *Handle[T]) ApplyStatus(ctx context.Context, desired ApplyConfiguration) (T, error) {
	c, err := h.applier(ctx, desired)
	if err != nil {
		return *new(T), err
	}
	return c.ApplyStatus(ctx, desired, h.applyOptions())
}

func (h *Handle[T]) applyOptions() metav1.ApplyOptions {
	return metav1.ApplyOptions{FieldManager: h.client.fieldOwner, Force: true}
}

// applier is client-go's own applying client for the object's namespace.
func (h *Handle[T]) applier(ctx context.Context, desired ApplyConfiguration) (*gentype.ClientWithApply[T, ApplyConfiguration], error) {
	if h.err != nil {
		return nil, h.err
	}
	if isNil(desired) || desired.GetName() == nil || *desired.GetName() == "" {
		return nil, fmt.Errorf("apply %s: the configuration has no name", h.gvk.Kind)
	}
	if k, ok := desired.(interface{ GetKind() *string }); ok && k.GetKind() != nil && *k.GetKind() != h.gvk.Kind {
		return nil, fmt.Errorf("apply %s: the configuration is of a %s, not of a %s", *desired.GetName(), *k.GetKind(), h.gvk.Kind)
	}
	var namespace string
	if ns := desired.GetNamespace(); ns != nil {
		namespace = *ns
	}
	m, err := h.mapping(ctx, namespace)
	if err != nil {
		return nil, fmt.Errorf("apply %s: %w", *desired.GetName(), err)
	}
	r, err := h.client.RESTClient(h.gvk)
	if err != nil {
		return nil, err
	}
	return gentype.NewClientWithApply[T, ApplyConfiguration](m.Resource.Resource, r, h.client.params, namespace, newObject[T]), nil
}
