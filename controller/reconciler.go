// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"
)

// Reconciler brings the world closer to what the object behind key wants. It reads the object itself: the key is all that
// it is told, however many events made it due. It must be safe for concurrent use with different keys.
//
// ctx carries a logger ([Logger]) and ends when the work is no longer wanted: context.Cause says
// why. A write that begins after Reconcile has returned is refused (C6).
type Reconciler[K comparable] interface {
	Reconcile(ctx context.Context, key K) (Result, error)
}

// Func makes a Reconciler of a function.
type Func[K comparable] func(ctx context.Context, key K) (Result, error)

// Reconcile calls f.
func (f Func[K]) Reconcile(ctx context.Context, key K) (Result, error) { return f(ctx, key) }

// Result is what a Reconcile wants next. The zero value: nothing, until the next event.
type Result struct {
	// RequeueAfter asks for another Reconcile of the key after this time, if positive; negative is an
	// error. It replaces what an earlier Reconcile
	// of the key had asked for; events make the key due earlier. Together with an error it is the earliest time of the retry.
	RequeueAfter time.Duration
}
