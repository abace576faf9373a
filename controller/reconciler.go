// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/term"
)

// Reconciler brings the world closer to what the object behind key wants. It reads the object
// itself: it gets only the key, however many events made that due. It must be safe for concurrent
// use with different keys.
//
// ctx carries a logger ([Logger]) and ends when the work is no longer wanted; context.Cause returns
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
	// RequeueAfter makes the key due again after this time, if positive. Negative is an error. It
	// replaces the RequeueAfter of an earlier Reconcile; events make the key due earlier. Together
	// with an error it is the earliest time of the retry.
	RequeueAfter time.Duration
}

// Terminal marks an error that no retry fixes, such as an invalid spec. The key waits for the next
// event, whatever RequeueAfter is. An error that wraps or joins a terminal one is terminal too: do
// not join it with a conflict of a status update, but return that conflict alone. Terminal(nil) is
// nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &terminalError{err}
}

type terminalError struct{ err error }

func (t *terminalError) Error() string { return t.err.Error() }
func (t *terminalError) Unwrap() error { return t.err }

// IsTerminal reports whether [Terminal] has marked err, or an error that it wraps.
func IsTerminal(err error) bool {
	var t *terminalError
	return errors.As(err, &t)
}

// RetryAfter marks an error that is retried after d, whatever the backoff is. It counts as a
// failure: the backoff of the next error is longer. With d of zero or less it returns err. The
// outermost mark counts; [Terminal] counts more. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil || d <= 0 {
		return err
	}
	return &retryAfterError{err, d}
}

type retryAfterError struct {
	err   error
	after time.Duration
}

func (r *retryAfterError) Error() string { return r.err.Error() }
func (r *retryAfterError) Unwrap() error { return r.err }

// PanicError is the error of a Reconcile that panicked (C5).
type PanicError struct {
	// Value is the argument of panic, or a *runtime.PanicNilError for nil.
	Value any
	// Stack is the goroutine's, in the form of runtime/debug.Stack. The log has it in an attribute.
	Stack []byte
}

// Error returns the value as text.
func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Unwrap returns the value if it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Keys of the context of a Reconcile: the function that Stale calls, and what the key's own writes
// leave in doubt.
type (
	staleKey  struct{}
	doubtsKey struct{}
)

// Stale returns an error, in a Reconcile, if what it reads may be older than the API server's state.
// It names each source and handle of the controller that does not follow the API server, and each
// write of the key's last Reconcile, or of the previous leader, that was not shown in time. In any
// other context it returns nil. A stale read returns the last known state (S9, C6). A read of a kind
// that was never synced waits until its context ends.
//
// If a Reconcile must not act on stale data, return this error. The key is then parked until nothing
// is stale, at most Options.ReadYourWrites at a time, and reconciled again. That is no failure and
// does not count as an attempt.
func Stale(ctx context.Context) error {
	stale, ok := ctx.Value(staleKey{}).(func() error)
	if !ok {
		return nil
	}
	doubts, _ := ctx.Value(doubtsKey{}).(error)
	if err := errors.Join(doubts, stale()); err != nil {
		return &staleError{err}
	}
	return nil
}

// staleError is what Stale returns.
type staleError struct{ err error }

func (s *staleError) Error() string { return s.err.Error() }
func (s *staleError) Unwrap() error { return s.err }

func isStale(err error) bool {
	_, ok := err.(*staleError) //nolint:errorlint // consistsOf unwraps
	return ok
}

// isNormal reports whether every controller meets such an error, and a retry fixes it: another
// client was faster, the API server asks for a pause, or a cache is behind.
func isNormal(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		return isStale(err)
	}
	err, _ = status.(error)
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsTooManyRequests(err)
}

// consistsOf reports whether err is such an error, or wraps or joins no others.
func consistsOf(err error, such func(error) bool) bool {
	if err == nil || such(err) {
		return err != nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		other := func(err error) bool { return !consistsOf(err, such) }
		return len(joined.Unwrap()) > 0 && !slices.ContainsFunc(joined.Unwrap(), other)
	}
	return consistsOf(errors.Unwrap(err), such)
}

// isFenced reports whether an error is that the term of a Reconcile has lost its trust. The context
// ends a little later, or goes on if the Lease is renewed after all.
func isFenced(ctx context.Context, err error) bool {
	leading := term.Of(ctx)
	return leading != nil && errors.Is(err, term.ErrFenced) && leading.Trusted() != nil
}
