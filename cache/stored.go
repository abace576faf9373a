// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"
)

// Stored calls do with each object of the scope, in the form in which the cache stores it. A packed
// object has its metadata, and not the type T. An object that does not fit T may be in an earlier
// state, or be missing. do must not change the objects. Package source calls it; use All.
func (h *Handle[T]) Stored(ctx context.Context, do func(Object)) error {
	found, err := h.handle.find(ctx, ListOptions{}, everythingIn(""))
	if err != nil {
		return fmt.Errorf("list %s: %w", h.handle.what(), err)
	}
	for _, p := range found {
		for _, obj := range p.objects {
			if o, ok := obj.(Object); ok {
				do(o)
			}
		}
	}
	return nil
}
