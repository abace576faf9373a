// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/listwatch"
)

// Resolve asks the API server what became of a write whose answer was lost. It lists the metadata of
// what the write could have changed and declared informers keep: one name, or one namespace if the
// name is not known. It returns what those informers do not show yet, to be given to Behind.
// resolved is false if no declared informer keeps the object that was made or adopted by a cache with
// a backend: then nothing was asked. An error means that the question had no answer.
//
// It makes one request, or one for each place if the informers keep several, and returns when ctx
// ends. A request that is still under way in the API server may take effect after Resolve; ask a
// moment after it has failed.
func (d *Declarations) Resolve(ctx context.Context, w Written) (unseen []Written, resolved bool, err error) {
	n := d.now.Load()
	if n == nil {
		return nil, false, nil
	}
	lists := map[place]*metadataList{}
	for _, g := range n.groups {
		i := g.keeper(&w)
		if i == nil || i.mapping.Load() == nil {
			continue // there is none, or it was never listed
		}
		at := i.key.place
		at.namespace, at.name = cmp.Or(w.Namespace, at.namespace), cmp.Or(w.Name, at.name)
		if lists[at] == nil {
			if lists[at], err = i.listMetadata(ctx, at); err != nil {
				return nil, false, fmt.Errorf("cache: cannot find out what became of the write of %s: %w", w.String(), err)
			}
		}
		for _, o := range i.compare(lists[at], at, &w) {
			if v, _ := i.shows(&o, &g.scope); v != shown {
				unseen = append(unseen, o)
			}
		}
	}
	return unseen, len(lists) > 0, nil
}

// metadataList is what the API server has at a place, in any labels and fields.
type metadataList struct {
	version string
	items   map[types.UID]*metav1.PartialObjectMetadata
}

func (i *informer) listMetadata(ctx context.Context, at place) (*metadataList, error) {
	all := &metadataList{items: map[types.UID]*metav1.PartialObjectMetadata{}}
	k := key{gvk: i.key.gvk, form: listwatch.Metadata, place: at}
	objects, err := k.target(i.cache.backend).ListMetadata(ctx, i.mapping.Load(), 0)
	if err != nil {
		return nil, err
	}
	all.version = objects.ResourceVersion
	for n := range objects.Items {
		all.items[objects.Items[n].UID] = &objects.Items[n]
	}
	return all, nil
}

// compare returns how what the store has at a place differs from a list of it.
func (i *informer) compare(list *metadataList, at place, w *Written) (unseen []Written) {
	stored := map[types.UID]Object{}
	for _, o := range i.storedAt(at) {
		stored[o.GetUID()] = o
		// What the list has not is gone, unless it is newer than the list.
		if list.items[o.GetUID()] == nil && !past(o.GetResourceVersion(), list.version) {
			unseen = append(unseen, Written{
				Host: w.Host, Resource: w.Resource, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), Gone: true,
			})
		}
	}
	for uid, o := range list.items {
		if s := stored[uid]; s == nil || !past(s.GetResourceVersion(), o.ResourceVersion) {
			unseen = append(unseen, Written{
				Host: w.Host, Resource: w.Resource, Namespace: o.Namespace, Name: o.Name, UID: uid,
				ResourceVersion: o.ResourceVersion, Object: o,
			})
		}
	}
	return unseen
}

// storedAt returns what the store has at a place.
func (i *informer) storedAt(at place) []Object {
	var some []any
	switch {
	case at.name != "":
		if o := i.stored(&Written{Namespace: at.namespace, Name: at.name}); o != nil {
			some = []any{o}
		}
	case at.namespace != "":
		some, _ = i.shared.GetIndexer().ByIndex(toolscache.NamespaceIndex, at.namespace)
	default:
		some = i.shared.GetStore().List()
	}
	all := make([]Object, 0, len(some))
	for _, obj := range some {
		if o, ok := obj.(Object); ok {
			all = append(all, o)
		}
	}
	return all
}
