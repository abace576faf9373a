// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/term"
)

// stage is a set of named functions that run at once and stop together.
type stage struct {
	start func(*function, func(context.Context) error) // runs it on the stage's context, in a goroutine
	end   context.CancelFunc                           // ends the stage's context

	mu      sync.Mutex // guards closed, and running from a start after the join
	closed  bool
	running sync.WaitGroup
}

// newStage makes a stage whose functions run until ctx is done or the stage is stopped. It reports
// their errors.
func newStage(ctx context.Context, r *report) *stage {
	ctx, cancel := context.WithCancel(ctx)
	s := &stage{end: cancel}
	s.start = func(what *function, f func(context.Context) error) {
		name, returned := what.name, r.running(what)
		s.running.Go(func() {
			failure := fmt.Errorf("%s: it %w", name, run.ErrExited) // unless call returns
			defer func() {
				r.failed(failure)
				returned()
			}()
			pprof.Do(ctx, pprof.Labels(label, r.label(name)), func(ctx context.Context) { failure = call(ctx, name, f) })
		})
	}
	return s
}

// run starts f, unless the stage is being joined.
func (s *stage) run(name string, f func(context.Context) error) { s.runBusy(name, nil, f) }

// runBusy is run, for a function that can tell what it is at.
func (s *stage) runBusy(name string, busy func() []string, f func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.start(&function{name, busy}, f)
	}
}

// join waits until every function has returned.
func (s *stage) join() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
}

// stop ends the stage's context and waits until every function has returned, or the deadline.
func (s *stage) stop(deadline time.Time) {
	s.end()
	overdue := time.NewTimer(time.Until(deadline))
	defer overdue.Stop()
	joined := make(chan struct{})
	go func() {
		s.join()
		close(joined)
	}()
	select {
	case <-joined:
	case <-overdue.C:
	}
}

// call calls f. Its error, or its panic, says whose it is (M4).
func call(ctx context.Context, name string, f func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: panic: %v\n%s", name, p, debug.Stack())
		}
	}()
	switch err := f(ctx); {
	case err == nil:
		return nil
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))):
		return nil // it was asked to stop, and says so
	case errors.Is(err, term.ErrFenced) && term.Of(ctx) != nil && term.Of(ctx).Trusted() != nil:
		return nil // it learned from the fence that its term is lost, before its context ended
	default:
		return fmt.Errorf("%s: %w", name, err)
	}
}
