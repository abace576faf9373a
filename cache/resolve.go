// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	lists := map[place]*metav1.PartialObjectMetadataList{}
	for _, g := range n.groups {
		i := g.keeper(&w)
		if i == nil || i.copy.Mapping.Load() == nil {
			continue // there is none, or it was never listed
		}
		at := i.key.place
		at.Namespace, at.Name = cmp.Or(w.Namespace, at.Namespace), cmp.Or(w.Name, at.Name)
		if lists[at] == nil {
			if lists[at], err = i.listMetadata(ctx, at); err != nil {
				return nil, false, fmt.Errorf("cache: cannot find out what became of the write of %s: %w", w.String(), err)
			}
		}
		unseen = append(unseen, i.copy.Compare(lists[at], at, &w)...)
	}
	return unseen, len(lists) > 0, nil
}

func (i *informer) listMetadata(ctx context.Context, at place) (*metav1.PartialObjectMetadataList, error) {
	k := key{gvk: i.key.gvk, form: listwatch.Metadata, place: at}
	return k.target(i.cache.backend).ListMetadata(ctx, i.copy.Mapping.Load(), 0)
}
