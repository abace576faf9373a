// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/term"
)

// Terminal marks an error that no retry will mend, such as an invalid spec. The key is not retried: it waits for the next
// event, whatever RequeueAfter says. So is an error that wraps or joins it: errors.Join(Terminal(err), conflict), the conflict being that of a status
// update, is not retried either, so where the update has failed, return that error alone. Terminal(nil) is nil.
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

// RetryAfter marks an error that says itself when to try again: after d, whatever the backoff would be. It counts as a failure
// all the same, so that the backoff of the next error is longer. With d of zero or less it is err: there is the usual backoff.
// Of several marks in one error the outermost counts; [Terminal] counts more. RetryAfter(nil, d) is nil.
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

// PanicError is the error that a Reconcile's panic is turned into (C5).
type PanicError struct {
	// Value is what panic was called with; a *runtime.PanicNilError for nil.
	Value any
	// Stack is that of the goroutine, as runtime/debug.Stack has it. The log has it in an attribute of its own.
	Stack []byte
}

// Error says the value.
func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Unwrap returns the value if it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// isNormal says whether an error is one that every controller meets and that a retry mends: somebody else was faster, the API
// server asks for a pause, or a cache is behind. Of several errors joined, all must be.
func isNormal(err error) bool {
	if err == nil {
		return false
	}
	if _, ok := err.(*staleError); ok { //nolint:errorlint // it unwraps by itself
		return true
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			if !isNormal(err) {
				return false
			}
		}
		return len(joined.Unwrap()) > 0
	}
	if status, ok := err.(apierrors.APIStatus); ok {
		err, _ := status.(error)
		return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsTooManyRequests(err)
	}
	return isNormal(errors.Unwrap(err))
}

// isFenced says whether an error is that the term under which a Reconcile runs has lost its trust. Its context ends a little later,
// or goes on if the Lease is renewed after all.
func isFenced(ctx context.Context, err error) bool {
	leading := term.Of(ctx)
	return leading != nil && errors.Is(err, term.ErrFenced) && leading.Trusted() != nil
}
