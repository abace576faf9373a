// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"time"
)

// Reconciler brings the world closer to what the object behind key wants. It reads the object itself: the key is all that
// it is told, however many events made it due. It must be safe for concurrent use with different keys.
//
// ctx carries a logger (logr.FromContextAsSlogLogger, klog.FromContext) and ends when the work is no longer wanted:
// context.Cause says why.
type Reconciler[K comparable] interface {
	Reconcile(ctx context.Context, key K) (Result, error)
}

// Func makes a Reconciler of a function.
type Func[K comparable] func(ctx context.Context, key K) (Result, error)

// Reconcile calls f.
func (f Func[K]) Reconcile(ctx context.Context, key K) (Result, error) { return f(ctx, key) }

// Result is what a Reconcile wants next. The zero value: nothing, until the next event.
type Result struct {
	// RequeueAfter asks for another Reconcile of the key after this time, if positive. It replaces what an earlier Reconcile
	// of the key had asked for; events make the key due earlier. Together with an error it is the earliest time of the retry.
	RequeueAfter time.Duration
}

// Terminal marks an error that no retry will mend, such as an invalid spec. The key is not retried: it waits for the next
// event. Terminal(nil) is nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &terminalError{err}
}

type terminalError struct{ err error }

func (t *terminalError) Error() string { return t.err.Error() }
func (t *terminalError) Unwrap() error { return t.err }

// IsTerminal says whether err, or an error that it wraps, was marked by [Terminal].
func IsTerminal(err error) bool {
	var t *terminalError
	return errors.As(err, &t)
}
