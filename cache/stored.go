// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import "context"

// Stored calls do with each object of the scope, in the form in which the cache stores it. A packed
// object has its metadata, and not the type T. do must not change the objects. Package source calls
// it; use All.
func (h *Handle[T]) Stored(ctx context.Context, do func(Object)) error {
	var wrong error
	h.handle.each(ctx, ListOptions{}, stored(ListOptions{}), func(obj any, err error) (more bool) {
		if o, ok := obj.(Object); ok && err == nil {
			do(o)
		}
		wrong = err
		return err == nil
	})
	return wrong
}
