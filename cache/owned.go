// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/object"
)

// Version names the stored state of an object.
type Version struct {
	Name            types.NamespacedName
	UID             types.UID
	ResourceVersion string
}

// OwnedVersions returns the versions of the objects with an owner reference to this UID,
// controlling or not, in no particular order. It costs less than [Handle.Owned], because it decodes
// no object. It waits and fails like Get. If some objects do not fit the Go type, it returns the
// others with an UndecodableError.
func (h *Handle[T]) OwnedVersions(ctx context.Context, owner types.UID, o ListOptions) ([]Version, error) {
	found, err := h.handle.find(ctx, o, ownedBy(owner))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", h.handle.what(), err)
	}
	var left leftovers
	n := 0
	for _, p := range found {
		n += len(p.objects)
	}
	all := make([]Version, 0, n)
	for stored := range found.matching(o, ownedBy(owner), &left) {
		obj, ok := stored.(Object)
		if !ok {
			return nil, misfit(h.handle.of, stored)
		}
		all = append(all, Version{object.Key(obj), obj.GetUID(), obj.GetResourceVersion()})
		if len(all) == o.Limit {
			return all, nil
		}
	}
	return all, h.handle.leftOut(&left)
}
