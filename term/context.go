// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package term

import "context"

type contextKey struct{}

// With returns a context whose requests are made under a term. A nil term changes nothing.
func With(ctx context.Context, t *Term) context.Context {
	if t == nil {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, t)
}

// Without returns a context whose requests are made under no term on purpose: any replica may make
// them, whether it leads or not. They are not counted as unfenced, and pass a client that is Strict.
func Without(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, (*Term)(nil))
}

// Of returns the term under which the requests of a context are made, nil for none.
func Of(ctx context.Context) *Term {
	t, _ := ctx.Value(contextKey{}).(*Term)
	return t
}

// Decided reports whether [With] or [Without] has settled under which term, if any, the requests of
// a context are made.
func Decided(ctx context.Context) bool {
	_, ok := ctx.Value(contextKey{}).(*Term)
	return ok
}
