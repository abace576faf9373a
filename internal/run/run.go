// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package run has the small parts of code that runs functions, waits for them and ends them.
package run

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// ErrExited is the result of a function that neither returned nor panicked. It follows a word for
// the function.
var ErrExited = errors.New("ended its goroutine, with runtime.Goexit or testing.T.FailNow; return an error instead")

// WithGrace returns a context that ends with work, and at the latest when grace has passed since
// take ended. Its cause then names the grace time. cancel must be called.
func WithGrace(take, work context.Context, grace time.Duration) (limited context.Context, cancel func()) {
	limited, end := context.WithCancelCause(work)
	over := fmt.Errorf("the grace time of %s is over: %w", grace, context.Canceled)
	stop := context.AfterFunc(take, func() { time.AfterFunc(grace, func() { end(over) }) })
	return limited, func() {
		stop()
		end(nil)
	}
}

// Sleep returns nil after d, or ctx's error as soon as ctx is done.
func Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil || d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Closed reports whether c is closed.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Barrier lets goroutines wait for a condition of its owner. It holds nothing while no goroutine
// waits. The owner's lock guards it.
type Barrier struct{ wait chan struct{} }

// When returns a channel that is closed: already, if the condition holds now, or else by Open.
func (b *Barrier) When(holds bool) <-chan struct{} {
	if holds {
		c := make(chan struct{})
		close(c)
		return c
	}
	if b.wait == nil {
		b.wait = make(chan struct{})
	}
	return b.wait
}

// Open releases those that wait, because the condition holds now.
func (b *Barrier) Open() {
	if b.wait != nil {
		close(b.wait)
		b.wait = nil
	}
}

// Recover makes a panic an error with its stack. Defer it.
func Recover(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}
