// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
)

// UpgradeManagedFields prepares an object for Apply that was written with Create, Update or Patch
// before. The API server tracks these writes and applies apart, even if the field owner is the
// same: a field that they wrote stays when a configuration no longer has it. After this call,
// fields that the managers wrote so count as applied by the client's field owner, and the next
// Apply without them removes them. Default for managers: the client's field owner.
//
// It reads the metadata, and writes only if there is something to upgrade: then upgraded is true.
// Call it before the first Apply after the move, and not in each Reconcile. If the object changes
// at the same time, the error is a conflict.
func (h *Handle[T]) UpgradeManagedFields(ctx context.Context, key types.NamespacedName, managers ...string) (upgraded bool, err error) {
	if h.target.err != nil {
		return false, h.target.err
	}
	metadata := ForKind[*metav1.PartialObjectMetadata](h.target.client, h.target.gvk)
	obj, err := metadata.GetLive(ctx, key)
	if err != nil {
		return false, err
	}
	owner, from := h.target.client.fieldOwner, sets.New(managers...)
	if len(from) == 0 {
		from.Insert(owner)
	}
	before := obj.DeepCopy().GetManagedFields()
	for _, subresource := range []string{"", "status"} {
		if err := csaupgrade.UpgradeManagedFields(obj, from, owner, csaupgrade.Subresource(subresource)); err != nil {
			return false, fmt.Errorf("upgrade the managed fields of %s %s: %w", h.target.gvk.Kind, key, err)
		}
	}
	if reflect.DeepEqual(before, obj.GetManagedFields()) {
		return false, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": obj.GetUID(), "resourceVersion": obj.GetResourceVersion(), "managedFields": obj.GetManagedFields(),
	}})
	if err != nil {
		return false, err
	}
	_, err = metadata.Patch(ctx, key, types.MergePatchType, patch)
	return err == nil, err
}
