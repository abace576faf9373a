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

// stage is a set of named functions that run at once and stop together. None is started any more
// when it is stopped.
type stage struct {
	// run starts f on the stage's context. busy returns what it is at, nil if that is not known.
	run     func(name string, busy func() []string, f func(context.Context) error)
	end     context.CancelFunc // ends the stage's context
	running sync.WaitGroup
}

// newStage makes a stage whose functions run until ctx is done or the stage is stopped. It reports
// their errors.
func newStage(ctx context.Context, r *report) *stage {
	ctx, cancel := context.WithCancel(ctx)
	s := &stage{end: cancel}
	s.run = func(name string, busy func() []string, f func(context.Context) error) {
		returned := r.running(&function{name, busy})
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

// stop ends the stage's context and waits until every function has returned, or the deadline.
func (s *stage) stop(deadline time.Time) {
	s.end()
	overdue := time.NewTimer(time.Until(deadline))
	defer overdue.Stop()
	joined := make(chan struct{})
	go func() {
		s.running.Wait()
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
