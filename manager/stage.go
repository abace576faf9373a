// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
)

// label marks the goroutines of a stage in goroutine profiles.
const label = "setpoint"

// stage is a set of named functions that run at once and stop together.
type stage struct {
	start func(name string, f func(context.Context) error) // runs f on the stage's context, in a goroutine of its own
	end   context.CancelFunc

	running sync.WaitGroup
	mu      sync.Mutex // guards names and errs
	names   []string   // of what has not returned
	errs    []error
}

// newStage makes a stage that runs until its stop, whatever becomes of ctx. The first error of each function goes to fail.
func newStage(ctx context.Context, fail func(error)) *stage {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &stage{end: cancel}
	s.start = func(name string, f func(context.Context) error) {
		path := name
		if outer, ok := pprof.Label(ctx, label); ok {
			path = outer + "/" + name // a stage within a stage: the stacks of the outer one include ours
		}
		s.running.Go(func() {
			pprof.Do(ctx, pprof.Labels(label, path), func(ctx context.Context) {
				if err := s.call(ctx, name, f); err != nil {
					fail(err)
				}
			})
		})
	}
	return s
}

// run starts f. Its error, or its panic, is reported with its name (M4).
func (s *stage) run(name string, f func(context.Context) error) {
	s.mu.Lock()
	s.names = append(s.names, name)
	s.mu.Unlock()
	s.start(name, f)
}

func (s *stage) call(ctx context.Context, name string, f func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		switch {
		case errors.Is(err, context.Canceled) && ctx.Err() != nil:
			err = nil // it was asked to stop, and says so
		case err != nil:
			err = fmt.Errorf("%s: %w", name, err)
		}
		s.returned(name, err)
	}()
	return f(ctx)
}

func (s *stage) returned(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.names, name)
	s.names = slices.Delete(s.names, i, i+1)
	if err != nil {
		s.errs = append(s.errs, err)
	}
}

// join waits until every function has returned, and returns their errors.
func (s *stage) join() error {
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}

// stop ends the stage's context and joins its functions. Past the deadline it gives up, and the error names those that still
// run, with their stacks (M1).
func (s *stage) stop(deadline context.Context) error {
	s.end()
	joined := make(chan error, 1)
	go func() { joined <- s.join() }()
	select {
	case err := <-joined:
		return err
	case <-deadline.Done():
		return s.stuck()
	}
}

func (s *stage) stuck() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := slices.Clone(s.errs)
	for _, name := range s.names {
		errs = append(errs, fmt.Errorf("%s has not stopped in time:\n%s", name, stacks(name)))
	}
	return errors.Join(errs...)
}

// stacks returns the stacks of all goroutines that carry the label: those that the function started, too.
func stacks(name string) string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return err.Error()
	}
	self := fmt.Sprintf("%q:%q", label, name) // how labels stand in a profile
	within := strings.TrimSuffix(fmt.Sprintf("%q:%q", label, name+"/"), `"`)
	var found []string
	for block := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(block, self) || strings.Contains(block, within) {
			found = append(found, block)
		}
	}
	return strings.Join(found, "\n\n")
}
