// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/term"
)

// label is the pprof label of a manager's goroutines, with the value MANAGER/FUNCTION.
const label = "setpoint"

const (
	// hardLimit is how long Run waits after the grace time for functions that still run.
	hardLimit = 3 * time.Second
	// moment is the part of hardLimit that each stage has at least, after the stages before it.
	moment = hardLimit / 12
)

type report struct {
	manager  string
	restores restores

	mu   sync.Mutex   // guards what follows
	log  *slog.Logger // nil: slog.Default()
	end  func()       // begins the stop; nil before Run
	runs []*function
	errs []error
	none run.Barrier // opens when no function runs
}

type function struct {
	name string
	busy func() []string // keys in progress; may be nil
}

// begin returns false for a second Run.
func (r *report) begin(ctx context.Context, end func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		return false
	}
	r.end = end
	if r.log == nil {
		r.log = logr.FromContextAsSlogLogger(ctx)
	}
	return true
}

func (r *report) logger() *slog.Logger {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.log == nil {
		return slog.Default()
	}
	return r.log
}

func (r *report) label(name string) string { return r.manager + "/" + name }

func (r *report) running(f *function) (returned func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = append(r.runs, f)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.runs = slices.DeleteFunc(r.runs, func(other *function) bool { return other == f })
		if len(r.runs) == 0 {
			r.none.Open()
		}
	}
}

// settle waits at most for d: work that outlived its Lease may be about to return.
func (r *report) settle(d time.Duration) {
	r.mu.Lock()
	none := r.none.When(len(r.runs) == 0)
	r.mu.Unlock()
	select {
	case <-none:
	case <-time.After(d):
	}
}

func (f *function) at() string {
	if f.busy == nil {
		return ""
	}
	if keys := f.busy(); len(keys) > 0 {
		return " (it reconciles " + strings.Join(keys, ", ") + ")"
	}
	return ""
}

// failed records an error and stops everything, or keeps Run from starting.
func (r *report) failed(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	r.errs = append(r.errs, err)
	end := r.end
	r.mu.Unlock()
	if end != nil {
		end()
	}
}

func (r *report) errors() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.errs)
}

func (r *report) result() error {
	r.mu.Lock()
	errs, runs := slices.Clone(r.errs), slices.Clone(r.runs)
	r.mu.Unlock()
	slices.Reverse(runs) // functions that started first wait for the others
	for i, f := range runs {
		if !slices.ContainsFunc(runs[:i], func(other *function) bool { return other.name == f.name }) {
			errs = append(errs, fmt.Errorf("%s has not stopped in time%s:\n%s", f.name, f.at(), run.Labelled(label, r.label(f.name), "")))
		}
	}
	return errors.Join(errs...)
}

// stage is a set of named functions that stop together. Nothing starts after stop.
type stage struct {
	// run starts f with the stage's context. busy describes the keys in progress; it may be nil.
	run     func(name string, busy func() []string, f func(context.Context) error)
	end     context.CancelFunc
	running sync.WaitGroup
}

func newStage(ctx context.Context, r *report) *stage {
	ctx, cancel := context.WithCancel(ctx)
	s := &stage{end: cancel}
	s.run = func(name string, busy func() []string, f func(context.Context) error) {
		returned := r.running(&function{name, busy})
		s.running.Go(func() {
			failure := fmt.Errorf("%s: it %w", name, run.ErrExited) // after runtime.Goexit
			defer func() {
				r.failed(failure)
				returned()
			}()
			pprof.Do(ctx, pprof.Labels(label, r.label(name)), func(ctx context.Context) { failure = call(ctx, name, f) })
		})
	}
	return s
}

func (s *stage) stop(deadline time.Time) {
	s.end()
	joined := make(chan struct{})
	go func() {
		s.running.Wait()
		close(joined)
	}()
	select {
	case <-joined:
	case <-time.After(time.Until(deadline)):
	}
}

// call adds the name to an error or panic, and drops errors that a stop causes.
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
		return nil // the end of its context
	case errors.Is(err, term.ErrFenced) && term.FromContext(ctx) != nil && term.FromContext(ctx).Trusted() != nil:
		return nil // the fence reported the loss of the term before the context ended
	default:
		return fmt.Errorf("%s: %w", name, err)
	}
}
