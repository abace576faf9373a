// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/argument"
)

const (
	// maxAttempts is how many objects' attempts a chain remembers. It forgets the oldest first.
	maxAttempts = 10_000
	// attemptFor is how long an attempt is remembered after its last change: longer than any
	// backoff.
	attemptFor = 24 * time.Hour
)

// Step is one step before the deletion of an object.
type Step[T client.Object] struct {
	// Finalizer names the step in the object's metadata, such as "example.com/bucket". Required.
	Finalizer string
	// Run does the work for an object that is being deleted. nil means that the work is done. Run
	// may be called again afterwards. Required.
	Run func(ctx context.Context, obj T) error
	// Timeout ends the context of Run. Default 0: none.
	Timeout time.Duration
}

// Chain has the steps before the deletion of objects of one kind. It is safe for concurrent use.
// For one object, call Ensure and Finalize from one goroutine at a time, such as its Reconcile.
type Chain[T client.Object] struct {
	handle   *client.Handle[T]
	steps    []Step[T]
	attempts *cache.LRUExpireCache // attempt, by UID
}

type attempt struct {
	step    int
	since   time.Time // of the first attempt of this step
	running bool
	err     error
}

// NewChain returns a chain of steps, which run in this order. The error names a step without a
// function, or with an invalid or repeated finalizer.
func NewChain[T client.Object](h *client.Handle[T], steps ...Step[T]) (*Chain[T], error) {
	if h == nil {
		return nil, errors.New("finalizer.NewChain: the handle is nil; client.For makes one")
	}
	if len(steps) == 0 {
		return nil, errors.New("finalizer.NewChain: there are no steps")
	}
	seen := map[string]bool{}
	for i, s := range steps {
		err := check(s.Finalizer)
		switch {
		case err != nil:
		case seen[s.Finalizer]:
			err = fmt.Errorf("the finalizer %s has another step; give each step its own", s.Finalizer)
		case s.Run == nil:
			err = fmt.Errorf("the step %s has no function Run", s.Finalizer)
		case s.Timeout < 0:
			err = fmt.Errorf("the step %s has the timeout %s; it must not be negative", s.Finalizer, s.Timeout)
		}
		if err != nil {
			return nil, fmt.Errorf("finalizer.NewChain: step %d: %w", i+1, err)
		}
		seen[s.Finalizer] = true
	}
	return &Chain[T]{handle: h, steps: append([]Step[T]{}, steps...), attempts: cache.NewLRUExpireCache(maxAttempts)}, nil
}

// Ensure adds the finalizers of all steps and returns the object as stored. If obj has them, it
// makes no request. obj must have been read, and not be in deletion. Errors of the API server are
// as in client.Handle.EnsureFinalizer.
func (c *Chain[T]) Ensure(ctx context.Context, obj T) (T, error) {
	for _, s := range c.steps {
		var err error
		if obj, err = c.handle.EnsureFinalizer(ctx, obj, s.Finalizer); err != nil {
			return *new(T), err
		}
	}
	return obj, nil
}

// Finalize runs the steps whose finalizers obj still has, in order, and removes the finalizer after
// each. nil means that the object is gone, or waits for finalizers of others, which State names.
// obj must be in deletion.
//
// The error of a step is a *[StepError], and later steps do not run. If Reconcile returns it, the
// step is tried again after the controller's backoff. For a fixed interval, use IsWaiting and
// RequeueAfter.
func (c *Chain[T]) Finalize(ctx context.Context, obj T) error {
	if argument.IsNil(obj) || obj.GetDeletionTimestamp() == nil {
		return errors.New("finalizer: Finalize is for an object with a deletionTimestamp; call Ensure for others")
	}
	for i, s := range c.steps {
		if !Has(obj, s.Finalizer) {
			continue
		}
		since := c.begin(obj, i)
		stored, err := c.step(ctx, obj, s)
		if err != nil {
			return &StepError{Finalizer: s.Finalizer, Step: i + 1, Steps: len(c.steps), Since: since, err: err}
		}
		obj = stored
	}
	c.attempts.Remove(obj.GetUID())
	return nil
}

func (c *Chain[T]) step(ctx context.Context, obj T, s Step[T]) (stored T, err error) {
	defer func() { // also after a panic
		a := c.attempt(obj.GetUID())
		a.running, a.err = false, err
		c.attempts.Add(obj.GetUID(), a, attemptFor)
	}()
	if err := s.run(ctx, obj); err != nil {
		return obj, err
	}
	if stored, err = c.handle.RemoveFinalizer(ctx, obj, s.Finalizer); err != nil {
		return obj, fmt.Errorf("remove the finalizer: %w", err)
	}
	return stored, nil
}

func (c *Chain[T]) begin(obj T, step int) time.Time {
	a := c.attempt(obj.GetUID())
	if a.step != step || a.since.IsZero() {
		a = attempt{step: step, since: time.Now()}
		if step == 0 {
			a.since = obj.GetDeletionTimestamp().Time
		}
	}
	a.running = true
	c.attempts.Add(obj.GetUID(), a, attemptFor)
	return a.since
}

func (c *Chain[T]) attempt(uid types.UID) attempt {
	last, _ := c.attempts.Get(uid)
	a, _ := last.(attempt)
	return a
}

func (s Step[T]) run(ctx context.Context, obj T) error {
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.Timeout, fmt.Errorf("the step's timeout of %s has passed: %w", s.Timeout, context.DeadlineExceeded))
		defer cancel()
	}
	return s.Run(ctx, obj)
}

// Waiting returns the error of a step that waits for something: "3 objects are left in the bucket".
// A controller logs and counts it as an error, also for MaxAttempts, unless Reconcile returns
// RequeueAfter instead: see [IsWaiting].
func Waiting(reason string) error { return &waiting{reason} }

type waiting struct{ reason string }

func (w *waiting) Error() string { return "waiting: " + w.reason }

// IsWaiting reports whether err is or wraps a [Waiting] error.
func IsWaiting(err error) bool { return errors.As(err, new(*waiting)) }

// StepError is the error of Finalize: a step has failed, or waits.
type StepError struct {
	// Finalizer names the step.
	Finalizer string
	// Step counts from 1 to Steps.
	Step, Steps int
	// Since is when this process first tried the step or, for the first step, when the deletion
	// began.
	Since time.Time

	err error
}

// Error names the step, the time of its first attempt, and the cause.
func (e *StepError) Error() string {
	return fmt.Sprintf("finalizer: step %d of %d, %s, has been pending since %s: %v", e.Step, e.Steps, e.Finalizer, e.Since.UTC().Format(time.RFC3339), e.err)
}

// Unwrap returns the step's error.
func (e *StepError) Unwrap() error { return e.err }

// State is what a deletion waits for.
type State struct {
	// Finalizer names the first step that is not done, or is "".
	Finalizer string
	// Left are the finalizers of all steps that are not done, in order.
	Left []string
	// Others are the finalizers of other controllers.
	Others []string
	// Running reports whether the step runs now.
	Running bool
	// Since is as in StepError, or zero if this process has not tried the step.
	Since time.Time
	// Err is the error of the last attempt, or nil.
	Err error
}

// State returns what the deletion of obj waits for. It may be called from anywhere.
func (c *Chain[T]) State(obj metav1.Object) State {
	var s State
	if argument.IsNil(obj) {
		return s
	}
	ours, first := map[string]bool{}, -1
	for i, step := range c.steps {
		ours[step.Finalizer] = true
		if Has(obj, step.Finalizer) {
			s.Left = append(s.Left, step.Finalizer)
			if first < 0 {
				first = i
			}
		}
	}
	for _, f := range obj.GetFinalizers() {
		if !ours[f] {
			s.Others = append(s.Others, f)
		}
	}
	if first < 0 {
		return s
	}
	s.Finalizer = s.Left[0]
	if a := c.attempt(obj.GetUID()); a.step == first {
		s.Running, s.Since, s.Err = a.running, a.since, a.err
	}
	return s
}

// String describes the state in one line.
func (s State) String() string {
	var text string
	switch {
	case s.Finalizer == "" && len(s.Others) == 0:
		return "no finalizer is left"
	case s.Finalizer == "":
		return "waits for finalizers of others: " + strings.Join(s.Others, ", ")
	case s.Since.IsZero():
		text = s.Finalizer + " is next"
	default:
		what := "has been pending"
		if s.Running {
			what = "has been running"
		}
		text = fmt.Sprintf("%s %s since %s", s.Finalizer, what, s.Since.UTC().Format(time.RFC3339))
	}
	if s.Err != nil {
		text += ": " + s.Err.Error()
	}
	if later := s.Left[1:]; len(later) > 0 {
		text += "; then " + strings.Join(later, ", ")
	}
	if len(s.Others) > 0 {
		text += "; finalizers of others: " + strings.Join(s.Others, ", ")
	}
	return text
}
