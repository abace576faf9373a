// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/term"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Reconciler brings the actual state closer to the state that the object of a key asks for. It gets
// only the key, and reads the object itself. Workers call it concurrently for different keys.
//
// ctx carries a logger ([Logger]) and a description ([InfoFromContext]). It ends when the work is
// no longer wanted; context.Cause returns the reason. Writes that begin after Reconcile has
// returned are refused.
type Reconciler[K comparable] interface {
	Reconcile(ctx context.Context, key K) (Result, error)
}

// Func is a function that implements Reconciler.
type Func[K comparable] func(ctx context.Context, key K) (Result, error)

// Reconcile calls f.
func (f Func[K]) Reconcile(ctx context.Context, key K) (Result, error) { return f(ctx, key) }

// Result is what a Reconcile wants next. The zero value waits for the next event.
type Result struct {
	// RequeueAfter, if not 0, makes the key due again after this time, or earlier by an event. It
	// replaces the value of an earlier Reconcile. With an error, it is the earliest time of the
	// retry. A negative value, such as time.Until of a time that has passed, means at once; a key
	// that goes on so is slowed down (C13).
	RequeueAfter time.Duration
	// Jitter, from 0 to 1, lengthens RequeueAfter by a random part of it: with 0.1, an hour becomes
	// 60 to 66 minutes. It spreads keys that became due together, as after a start. Another value
	// is an error like [Terminal]'s. Default: 0.
	Jitter float64
	// Class is the class of the next Reconcile if that is a retry or comes from RequeueAfter. An
	// event in a higher class still raises the key. Default: nil, this Reconcile's class.
	//
	//	return controller.Result{RequeueAfter: time.Hour, Class: new(workqueue.Background)}, nil
	Class *workqueue.Class
}

// settle replaces a RequeueAfter by what it means.
func (r *Result) settle() error {
	switch {
	case !(r.Jitter >= 0 && r.Jitter <= 1): // NaN, too
		return Terminal(fmt.Errorf("controller.Result.Jitter is %v; give a part of RequeueAfter, from 0 to 1", r.Jitter))
	case r.RequeueAfter < 0:
		r.RequeueAfter = 1 // due at once
	case r.RequeueAfter > 0 && r.Jitter > 0:
		more := time.Duration(rand.Float64() * r.Jitter * float64(r.RequeueAfter)) //nolint:gosec // no secret
		r.RequeueAfter = max(r.RequeueAfter, r.RequeueAfter+more)                  // no overflow
	}
	return nil
}

// Terminal marks an error that no retry fixes, such as an invalid spec. The key waits for the next
// event, whatever RequeueAfter is. An error that wraps or joins a terminal error is terminal, too:
// if a status update then conflicts, return the conflict alone. Terminal(nil) is nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &terminalError{err}
}

type terminalError struct{ error }

func (t *terminalError) Unwrap() error { return t.error }

// IsTerminal reports whether err, or an error that it wraps, was marked by [Terminal].
func IsTerminal(err error) bool {
	return errors.As(err, new(*terminalError))
}

// RetryAfter marks an error that is retried after d. It counts as a failure: the next backoff is
// longer. The outermost mark decides, but [Terminal] overrides it. If err is nil or d is not
// positive, RetryAfter returns err.
func RetryAfter(err error, d time.Duration) error {
	if err == nil || d <= 0 {
		return err
	}
	return &retryAfterError{err, d}
}

type retryAfterError struct {
	error
	after time.Duration
}

func (r *retryAfterError) Unwrap() error { return r.error }

// PanicError is the error of a Reconcile that panicked.
type PanicError struct {
	// Value is the argument of panic, or a *runtime.PanicNilError for nil.
	Value any
	// Stack is in the form of runtime/debug.Stack. The log has it as attribute "stack".
	Stack []byte
}

// Error returns "panic: " and the text of Value.
func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Unwrap returns the value if it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

type (
	staleKey  struct{}
	doubtsKey struct{}
)

// Stale returns an error if a Reconcile's reads may be older than the API server's state. It names
// each source and handle of the controller that does not follow the API server. It also names
// writes that the caches do not show after the wait: of the key's last Reconcile, or of the
// previous leader. For other contexts, Stale returns nil. A stale read returns the last known
// state. A read of a kind that was never synced waits until its context ends.
//
// If a Reconcile must not act on stale data, return this error. The key is then parked until
// nothing is stale, for at most Options.ReadYourWrites; then Stale may return an error again. This
// counts neither as a failure nor as an attempt.
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

type staleError struct{ error }

func (s *staleError) Unwrap() error { return s.error }

func isStale(err error) bool {
	_, ok := err.(*staleError) //nolint:errorlint // consistsOf unwraps
	return ok
}

// isNormal reports whether err is expected, and a retry fixes it.
func isNormal(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		return isStale(err)
	}
	err, _ = status.(error)
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsTooManyRequests(err) || isTerminating(err)
}

// isTerminating reports whether the API server refuses to create something because the namespace is
// being deleted. It soon deletes the key's object, too.
func isTerminating(err error) bool {
	_, ok := err.(apierrors.APIStatus)
	return ok && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// missingAttempts is how many attempts may write to an object that was just deleted. The event of
// the deletion usually ends them after the first one.
const missingAttempts = 5

// wroteToMissing reports whether err is the answer to a write to an object that does not exist, or
// in a namespace that does not: it was probably just deleted, which the caches do not show yet.
func (r *running[K]) wroteToMissing(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	if !ok || !apierrors.IsNotFound(err) || r.item.Attempt() > missingAttempts {
		return false
	}
	missing, l := status.Status().Details, r.ledger.Load()
	if missing == nil || l == nil || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false // or the API server does not know the kind
	}
	return slices.ContainsFunc(l.Requests(), func(q ledger.Request) bool {
		return q.Mutates() && q.Status == http.StatusNotFound &&
			(q.Name == missing.Name || missing.Kind == "namespaces" && q.Namespace == missing.Name)
	})
}

func consistsOf(err error, such func(error) bool) bool {
	if err == nil || such(err) {
		return err != nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		other := func(err error) bool { return !consistsOf(err, such) }
		return len(joined.Unwrap()) > 0 && !slices.ContainsFunc(joined.Unwrap(), other)
	}
	return consistsOf(errors.Unwrap(err), such)
}

// isFenced reports whether err means that the Reconcile's term is no longer trusted. The context
// ends a little later, or continues if the Lease is renewed after all.
func isFenced(ctx context.Context, err error) bool {
	leading := term.FromContext(ctx)
	return leading != nil && errors.Is(err, term.ErrFenced) && leading.Trusted() != nil
}
