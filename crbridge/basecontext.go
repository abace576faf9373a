// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import "context"

// based returns ctx with the values of BaseContext, too.
func (b *Bridge) based(ctx context.Context) context.Context {
	if b.options.BaseContext == nil {
		return ctx
	}
	return &valued{ctx, b.options.BaseContext()}
}

// valued is a context with the values of another one.
type valued struct {
	context.Context

	values interface{ Value(key any) any }
}

func (v *valued) Value(key any) any {
	if value := v.Context.Value(key); value != nil {
		return value
	}
	return v.values.Value(key)
}
