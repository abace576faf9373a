// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/object"
)

// Decides reports whether a list of a place proves that a write was carried out before the list, or
// would fail after it. A list proves nothing about a write without a name, and about a patch that
// fits any version.
func (w *Write) Decides(list *metav1.PartialObjectMetadataList) bool {
	if w.Name == "" {
		return false
	}
	n := slices.IndexFunc(list.Items, func(o metav1.PartialObjectMetadata) bool { return o.Name == w.Name })
	switch {
	case w.Verb == "create" && w.Subresource == "":
		return n >= 0
	case w.Verb == "delete" || w.Subresource == "eviction":
		return n < 0 || list.Items[n].DeletionTimestamp != nil
	case w.Replaces != "":
		return n < 0 || list.Items[n].ResourceVersion != w.Replaces
	}
	return false
}

// Compare compares a list of a place with the store. It returns the writes that explain the
// differences and that the store does not show.
func (view *View) Compare(list *metav1.PartialObjectMetadataList, at types.NamespacedName, w *Write) (unseen []Write) {
	items := map[types.UID]*metav1.PartialObjectMetadata{}
	for n := range list.Items {
		items[list.Items[n].UID] = &list.Items[n]
	}
	stored := map[types.UID]object.Object{}
	for _, o := range view.storedAt(at) {
		stored[o.GetUID()] = o
		// A stored object that the list lacks is deleted, unless it is newer than the list.
		if items[o.GetUID()] == nil && !object.AtLeast(o.GetResourceVersion(), list.ResourceVersion) {
			unseen = append(unseen, Write{
				Host: w.Host, Resource: w.Resource, In: w.In, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), Gone: true,
			})
		}
	}
	for uid, o := range items {
		if s := stored[uid]; s == nil || !object.AtLeast(s.GetResourceVersion(), o.ResourceVersion) {
			unseen = append(unseen, Write{
				Host: w.Host, Resource: w.Resource, In: w.In, Namespace: o.Namespace, Name: o.Name, UID: uid,
				ResourceVersion: o.ResourceVersion, Object: o,
			})
		}
	}
	return slices.DeleteFunc(unseen, func(o Write) bool {
		v, _ := view.Shows(&o)
		return v == Shown
	})
}

func (view *View) storedAt(at types.NamespacedName) []object.Object {
	var some []any
	switch {
	case at.Name != "":
		if o := view.Stored(&Write{Namespace: at.Namespace, Name: at.Name}); o != nil {
			some = []any{o}
		}
	case at.Namespace != "":
		some, _ = view.Shared.GetIndexer().ByIndex(toolscache.NamespaceIndex, at.Namespace)
	default:
		some = view.store().List()
	}
	all := make([]object.Object, 0, len(some))
	for _, obj := range some {
		if o, ok := obj.(object.Object); ok {
			all = append(all, o)
		}
	}
	return all
}
