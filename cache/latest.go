// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/storage"
)

func (d *declarations) Latest(w consistency.Write) (stored, answered Object) {
	for _, g := range d.groups() {
		i := g.informerFor(&w)
		if i == nil {
			continue
		}
		now := i.view.Stored(&w)
		if now == nil || now.GetUID() != w.UID {
			continue
		}
		shared, err := storage.Shared(now)
		if err != nil {
			continue
		}
		stored, _ = shared.(Object)
		if answered = i.asStored(w, stored); answered != nil || w.Object == nil {
			return stored, answered
		}
	}
	return stored, nil
}

func (d *declarations) Stored(handle any, at types.NamespacedName) Object {
	g := scopeOf(handle)
	if g == nil {
		return nil
	}
	i, err := g.member(at)
	if err != nil {
		return nil
	}
	return i.view.Stored(&consistency.Write{Namespace: at.Namespace, Name: at.Name})
}

// asStored returns a copy of the object in an answer as the informer would keep it, or nil.
func (i *informer) asStored(w consistency.Write, like Object) Object {
	if w.Object == nil || like == nil || reflect.TypeOf(w.Object) != reflect.TypeOf(like) {
		return nil
	}
	o, ok := w.Object.DeepCopyObject().(Object)
	if !ok || i.key.trim(o) != nil {
		return nil
	}
	return o
}

func (d *declarations) Managers(ctx context.Context, w consistency.Write) []metav1.ManagedFieldsEntry {
	for _, g := range d.groups() {
		i := g.informerFor(&w)
		if i == nil || i.env.backend == nil || i.view.Mapping.Load() == nil {
			continue
		}
		if list, err := i.listMetadata(ctx, w.At()); err == nil && len(list.Items) > 0 {
			return list.Items[0].ManagedFields
		}
	}
	return nil
}
