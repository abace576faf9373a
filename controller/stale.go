// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
)

// staleKey is under which the context of a Reconcile has the function that Stale calls, and doubtsKey what it does not see.
type (
	staleKey  struct{}
	doubtsKey struct{}
)

// Stale says, in a Reconcile, which of the things that its controller watches or reads may be older than the API server's state,
// and why, and what its key's last Reconcile, or the leader before, has written without being shown in time: one error that joins one for each, or nil if there
// are none. What is read meanwhile is the last known state (S9, C6), and a read of what was never synced waits for its context. A
// Reconcile that must not act on such may return the error, to be called again. For other contexts it is nil.
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

// staleError is what Stale returns. A Reconcile that returns it is tried again, without much ado.
type staleError struct{ err error }

func (s *staleError) Error() string { return s.err.Error() }
func (s *staleError) Unwrap() error { return s.err }

func (c *Controller[K]) stale() error {
	c.mu.Lock()
	watches, reads := c.watches, c.reads
	c.mu.Unlock()
	var all []error
	for _, w := range watches {
		all = append(all, named(w.source, w.source.Stale()))
	}
	for _, r := range reads {
		all = append(all, named(r, r.Stale()))
	}
	return errors.Join(all...)
}
