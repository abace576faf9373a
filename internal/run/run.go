// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package run has helpers that run functions, wait for them and stop them.
package run

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// ErrExited is the error of a function that neither returned nor panicked. Its text follows a noun
// for the function.
var ErrExited = errors.New("ended its goroutine, with runtime.Goexit or testing.T.FailNow; return an error instead")

// WithGrace returns a context that ends with work, or when grace has passed after take ended; its
// cause then names the grace time. The caller must call cancel.
func WithGrace(take, work context.Context, grace time.Duration) (limited context.Context, cancel func()) {
	limited, end := context.WithCancelCause(work)
	over := fmt.Errorf("the grace time of %s is over: %w", grace, context.Canceled)
	stop := context.AfterFunc(take, func() { time.AfterFunc(grace, func() { end(over) }) })
	return limited, func() {
		stop()
		end(nil)
	}
}

// Until returns a context that ends with ctx or, with a cause, when ended is closed. The caller
// must call stop.
func Until(ctx context.Context, ended <-chan struct{}, cause error) (limited context.Context, stop func()) {
	limited, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-ended:
			end(cause)
		case <-limited.Done():
		}
	})
	return limited, func() {
		end(nil)
		watching.Wait()
	}
}

// Sleep returns nil after d, or ctx's error as soon as ctx is done.
func Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil || d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// After calls f after d, unless stop is called before. f does not run after stop has returned.
func After(d time.Duration, f func()) (stop func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(d, func() {
		defer close(done)
		f()
	})
	return func() {
		if !timer.Stop() {
			<-done
		}
	}
}

// Poke puts an element into a buffered channel, unless it is full.
func Poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
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

// Barrier lets goroutines wait for a condition, under the owner's lock.
type Barrier struct{ wait chan struct{} }

// When returns a channel, which is closed already if the condition holds. Otherwise Open closes it.
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

// Open releases the waiting goroutines: the condition holds now.
func (b *Barrier) Open() {
	if b.wait != nil {
		close(b.wait)
		b.wait = nil
	}
}

// Recover turns a panic into an error with its stack. Call it with defer.
func Recover(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}
