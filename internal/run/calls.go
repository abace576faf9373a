// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/pprof"
	"slices"
	"sync"
	"time"
)

const (
	// overdueAfter is how long a call has to return after its context ended. A request that honors
	// its context needs much less.
	overdueAfter = 100 * time.Millisecond
	// mostOverdue limits the goroutines: further calls fail at once.
	mostOverdue = 3

	callLabel = "setpoint-call" // the pprof label of a call's goroutine
)

// Calls are calls of functions that may ignore the end of their contexts, as a request does in an
// exec plugin that hangs, or in a wrapped transport. Their caller does not wait for them then. It
// is safe for concurrent use.
type Calls struct {
	// Of is what the requests are for, in errors.
	Of string

	mu      sync.Mutex // guards what follows
	open    []*request // the oldest first
	overdue int        // of open
	since   time.Time  // when a call became overdue, and none has returned since; or zero
	none    Barrier    // opens when none is open
}

type request struct {
	began         time.Time
	ended, orphan bool // the function has returned; its caller has not waited
}

// OverdueError is the error of a call that has not returned when its context ended, and of calls
// that are not made because others have not.
type OverdueError struct {
	Of    string
	Began time.Time // of the oldest such call
}

// Error names the request, when it began, and what may be the cause.
func (e *OverdueError) Error() string {
	return fmt.Sprintf("no answer to a request for %s since %s, and the request has not returned in its time; "+
		"look for an exec plugin or a transport in its rest.Config that hangs", e.Of, e.Began.UTC().Format(time.RFC3339))
}

// Call returns the result of f, whose context ends with ctx or after limit. If f goes on after
// that, Call returns an *OverdueError. Join then joins its goroutine.
func Call[T any](ctx context.Context, c *Calls, limit time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return call(ctx, c, mostOverdue, f, nil)
}

// Open is Call for something that lasts, such as a watch: the context of f ends after limit only if
// f has not returned. stop ends the context, and calls end with the result. It does not wait for an
// end that hangs. A result that comes too late is ended, too.
func Open[T any](ctx context.Context, c *Calls, limit time.Duration, f func(context.Context) (T, error), end func(T)) (opened T, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(limit, cancel)
	if opened, err = call(ctx, c, mostOverdue, f, end); err != nil {
		late.Stop()
		cancel()
		return opened, nil, err
	}
	stop = func() {
		cancel()
		_, _ = call(ctx, c, math.MaxInt, func(context.Context) (struct{}, error) {
			end(opened)
			return struct{}{}, nil
		}, nil)
	}
	if !late.Stop() {
		stop()
		return opened, nil, fmt.Errorf("no answer within %s", limit)
	}
	return opened, stop, nil
}

func call[T any](ctx context.Context, c *Calls, most int, f func(context.Context) (T, error), late func(T)) (result T, err error) {
	r, err := c.begin(most)
	if err != nil {
		return result, err
	}
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		a := answer{err: fmt.Errorf("the request %w", ErrExited)}
		defer c.returned(r)
		defer func() {
			if c.settle(r) {
				answers <- a
			} else if a.err == nil && late != nil {
				late(a.value)
			}
		}()
		defer Recover(&a.err)
		pprof.Do(ctx, pprof.Labels(callLabel, c.Of), func(ctx context.Context) { a.value, a.err = f(ctx) })
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-answers:
		return a.value, a.err
	case <-time.After(overdueAfter):
	}
	if err := c.abandon(r); err != nil {
		return result, err
	}
	a := <-answers
	return a.value, a.err
}

// begin returns an error if that many calls are overdue.
func (c *Calls) begin(most int) (*request, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.overdue >= most {
		return nil, c.overdueLocked()
	}
	r := &request{began: time.Now()}
	c.open = append(c.open, r)
	return r, nil
}

func (c *Calls) overdueLocked() error {
	for _, r := range c.open {
		if r.orphan {
			return &OverdueError{c.Of, r.began}
		}
	}
	return nil
}

// settle records that the function has returned, and reports whether its caller waits.
func (c *Calls) settle(r *request) (waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.ended = true
	return !r.orphan
}

// abandon returns nil if the function has returned.
func (c *Calls) abandon(r *request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.ended {
		return nil
	}
	r.orphan = true
	c.overdue++
	if c.since.IsZero() {
		c.since = time.Now()
	}
	return c.overdueLocked()
}

func (c *Calls) returned(r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = slices.DeleteFunc(c.open, func(other *request) bool { return other == r })
	if r.orphan {
		c.overdue--
	}
	c.since = time.Time{}
	if len(c.open) == 0 {
		c.none.Open()
	}
}

// Stuck returns an error if a call has been overdue for longer than limit, and no call has returned
// meanwhile.
func (c *Calls) Stuck(limit time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() || time.Since(c.since) <= limit || len(c.open) == 0 {
		return nil
	}
	return fmt.Errorf("%s: this process must be replaced", c.unreturnedLocked())
}

func (c *Calls) unreturnedLocked() string {
	return fmt.Sprintf("a request for %s has not returned since %s, although its time is over", c.Of, c.open[0].began.UTC().Format(time.RFC3339))
}

// Join waits until all calls have returned, at most for limit. Their contexts have ended. The error
// has the stacks of those that go on.
func Join(limit time.Duration, all ...*Calls) error {
	late := time.NewTimer(limit)
	defer late.Stop()
	var errs []error
	for _, c := range all {
		select {
		case <-c.joined():
		case <-late.C:
			late.Reset(0) // for the next ones
		}
		errs = append(errs, c.unjoined())
	}
	return errors.Join(errs...)
}

func (c *Calls) joined() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.none.When(len(c.open) == 0)
}

func (c *Calls) unjoined() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) == 0 {
		return nil
	}
	// The frame leaves out the stacks of connections that a request has opened.
	return errors.New(c.unreturnedLocked() + ":\n" + Labelled(callLabel, c.Of, "internal/run.call["))
}
