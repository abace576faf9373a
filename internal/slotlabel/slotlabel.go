// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package slotlabel computes the label with the slot of an object's controller. A shard.Group puts
// a Label into the contexts of its Reconciles, and write handles add it to what they send. Caches
// select by it at the API server, so a wrong label would hide an object from its owner.
package slotlabel

import (
	"context"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Label is the label of one group.
type Label struct {
	// Key is the label's key.
	Key string
	// Slot maps the key of a controller to its slot.
	Slot func(types.NamespacedName) (uint8, error)
	// Value returns the label's value for objects with a controller of a kind, in a slot.
	Value func(owner schema.GroupKind, slot uint8) string
}

// Adopted is a Label with the slot whose work a context belongs to.
type Adopted struct {
	*Label

	Slot uint8
}

type contextKey struct{}

// With returns a context for the work of a slot, or ctx if the label is nil.
func With(ctx context.Context, l *Label, slot uint8) context.Context {
	if l == nil {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, &Adopted{l, slot})
}

// Of returns what With has put into the context, or nil.
func Of(ctx context.Context) *Adopted {
	a, _ := ctx.Value(contextKey{}).(*Adopted)
	return a
}

// Owner is the controller of an object.
type Owner struct {
	Kind schema.GroupVersionKind
	Key  types.NamespacedName // without a namespace if the kind is cluster-scoped
}

// ControllerOf returns the object's owner reference with controller: true, or nil. It has
// the namespace of the object. If its kind is cluster-scoped, the caller removes it.
func ControllerOf(namespace string, owners []metav1.OwnerReference) *Owner {
	for i := range owners {
		if o := &owners[i]; o.Controller != nil && *o.Controller {
			return &Owner{
				Kind: schema.FromAPIVersionAndKind(o.APIVersion, o.Kind),
				Key:  types.NamespacedName{Namespace: namespace, Name: o.Name},
			}
		}
	}
	return nil
}

// Fix returns the labels that an object with this controller should have, and whether they differ
// from labels, which it does not change. It adds the label only if the controller is in the slot of
// the context. But it corrects a wrong label, and removes one without a controller.
func (a *Adopted) Fix(labels map[string]string, owner *Owner) (fixed map[string]string, differ bool) {
	has, ok := labels[a.Key]
	if owner == nil {
		if !ok {
			return labels, false
		}
		fixed = maps.Clone(labels)
		delete(fixed, a.Key)
		return fixed, true
	}
	slot, err := a.Label.Slot(owner.Key)
	if err != nil || !ok && slot != a.Slot {
		return labels, false
	}
	right := a.Value(owner.Kind.GroupKind(), slot)
	if has == right {
		return labels, false
	}
	if fixed = maps.Clone(labels); fixed == nil {
		fixed = map[string]string{}
	}
	fixed[a.Key] = right
	return fixed, true
}
