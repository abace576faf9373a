// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/slotlabel"
)

// labeler is a handle that labels objects with the slot of their controller.
type labeler[T Object] interface {
	labelled(ctx context.Context, obj T) T
}

// labelled returns obj with the slot of its controller in a label, if ctx is of a Reconcile that
// labels children. It does not change obj.
func labelled[T Object](ctx context.Context, w Writer[T], obj T) T {
	if l, ok := w.(labeler[T]); ok {
		return l.labelled(ctx, obj)
	}
	return obj
}

func (h *Handle[T]) labelled(ctx context.Context, obj T) T {
	a := slotlabel.Of(ctx)
	if a == nil || h.target.err != nil {
		return obj
	}
	owner, ok := h.target.client.controllerOf(ctx, obj.GetNamespace(), obj.GetOwnerReferences())
	if !ok {
		return obj
	}
	labels, differ := a.Fix(obj.GetLabels(), owner)
	if !differ {
		return obj
	}
	obj, _ = obj.DeepCopyObject().(T)
	obj.SetLabels(labels)
	return obj
}

// reclaim labels an existing object, if its controller is in the slot of ctx. A label that was
// edited may hide it from the caller's cache. An error changes nothing: the caller tries again.
func (h *Handle[T]) reclaim(ctx context.Context, key types.NamespacedName) {
	if slotlabel.Of(ctx) == nil {
		return
	}
	metadata := ForKind[*metav1.PartialObjectMetadata](h.target.client, h.target.gvk)
	if o, err := metadata.GetLive(ctx, key); err == nil {
		_, _ = PatchFrom(ctx, metadata, o, o, OptimisticLock())
	}
}

// controllerOf returns an object's controller, or nil. ok is false if its scope is unknown: then
// the object stays as it is, and caches filter it without the label.
func (c *Client) controllerOf(ctx context.Context, namespace string, owners []metav1.OwnerReference) (owner *slotlabel.Owner, ok bool) {
	owner = slotlabel.ControllerOf(namespace, owners)
	if owner == nil || namespace == "" {
		return owner, true
	}
	m, err := c.Mapping(ctx, owner.Kind)
	if err != nil {
		return nil, false
	}
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		owner.Key.Namespace = ""
	}
	return owner, true
}

// labelApply adds the label to the body of an apply, if it has the controller reference. Otherwise
// the object may have a controller that another field owner applies.
func (t target) labelApply(ctx context.Context, namespace string, body []byte) ([]byte, error) {
	a := slotlabel.Of(ctx)
	if a == nil || t.subresource != "" {
		return body, nil
	}
	var desired struct {
		Metadata struct {
			OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
			Labels          map[string]string       `json:"labels"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &desired); err != nil {
		return nil, fmt.Errorf("the metadata of the configuration: %w", err)
	}
	owner, ok := t.client.controllerOf(ctx, namespace, desired.Metadata.OwnerReferences)
	if !ok || owner == nil {
		return body, nil
	}
	labels, differ := a.Fix(desired.Metadata.Labels, owner)
	if !differ {
		return body, nil
	}
	return setMetadata(body, "labels", labels)
}

// setMetadata replaces a field of the metadata in a JSON object that has metadata.
func setMetadata(body []byte, field string, value any) ([]byte, error) {
	var object, metadata map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(object["metadata"], &metadata); err != nil {
		return nil, err
	}
	for _, part := range []struct {
		of   map[string]json.RawMessage
		name string
		what any
	}{{metadata, field, value}, {object, "metadata", metadata}} {
		data, err := json.Marshal(part.what)
		if err != nil {
			return nil, err
		}
		part.of[part.name] = data
	}
	return json.Marshal(object)
}
