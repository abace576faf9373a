// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
)

// staleKey is under which the context of a Reconcile has the function that Stale calls, and doubtsKey what it does not see.
type (
	staleKey  struct{}
	doubtsKey struct{}
)

// Stale returns an error, in a Reconcile, if what it reads may be older than the API server's state:
// one for each source or handle of its controller that does not follow the API server, and one for
// each write of the key's last Reconcile, or of the previous leader, that was not shown in time. It
// returns nil if everything is current, and in any other context. A stale read returns the last
// known state (S9, C6); a read of what was never synced waits for its context.
//
// A Reconcile that must not act on stale data returns this error. The key is then parked until
// nothing is stale, at most Options.ReadYourWrites at a time, and reconciled again. That is no
// failure: it does not count as an attempt.
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

// isStale reports whether an error is what Stale returned, and nothing else besides.
func isStale(err error) bool {
	if err == nil {
		return false
	}
	if _, ok := err.(*staleError); ok { //nolint:errorlint // it unwraps by itself
		return true
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return len(joined.Unwrap()) > 0 && !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !isStale(err) })
	}
	return isStale(errors.Unwrap(err))
}
