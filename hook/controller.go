// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"time"
)

// Outcome is the result of a Reconcile.
type Outcome string

const (
	// Succeeded: no error and no RequeueAfter.
	Succeeded Outcome = "success"
	// RequeuedAfter: no error, and a RequeueAfter.
	RequeuedAfter Outcome = "requeue_after"
	// Failed: an error. The key is retried with backoff, unless Reconciled.GaveUp is set.
	Failed Outcome = "error"
	// FailedTerminally: an error that is not retried.
	FailedTerminally Outcome = "terminal_error"
	// Panicked: a panic, which becomes an error and is retried like Failed.
	Panicked Outcome = "panic"
	// Stale: the error of controller.Stale. This is no failure: the key is parked until the caches
	// are current again.
	Stale Outcome = "stale"
	// Interrupted: an error after a stop or a lost Lease cancelled the context. This is no failure:
	// the key is ready at once for the next worker or leader.
	Interrupted Outcome = "interrupted"
)

// Reconciling reports that a Reconcile begins.
type Reconciling struct {
	Controller string
	// Context is what the Reconcile gets. An observer may replace it by one that is derived from
	// it, for example with a tracing span, but not by nil. controller.InfoFromContext describes the
	// Reconcile.
	Context context.Context
}

// Reconciled reports that a Reconcile has returned. The worker still holds the key.
type Reconciled struct {
	Controller string
	// Context is what the Reconcile got. A request with it is refused as too late.
	Context context.Context
	Took    time.Duration
	Outcome Outcome
	Err     error
	// TimedOut reports whether the context ended because of Options.Deadline.
	TimedOut bool
	// GaveUp reports that the key is not retried, because it reached Options.MaxAttempts.
	GaveUp bool
}

// GaveUp reports, after Reconciled, a key that reached MaxAttempts of controller.Options.
type GaveUp struct {
	Controller  string
	Key         string
	ReconcileID string
	// Attempts is the number of failures in a row.
	Attempts int
	Err      error
}

// ControllerStarted reports that Warm begins. It is the first event of a controller.
type ControllerStarted struct {
	Controller string
	// Of is the *controller.Controller. It distinguishes controllers with the same name.
	Of any
	// Stats returns the current counts. It is cheap and safe for concurrent use.
	Stats func() ControllerStats
}

// ControllerStats are the current counts of a controller.
type ControllerStats struct {
	// Workers is the limit of concurrent Reconciles, on a standby too. Active is their number.
	Workers, Active int
	// Failing has the numbers of keys whose last Reconcile failed, by their why.Reason as text.
	// Those that are not retried count, too. A reason that has occurred stays, with 0. On a standby
	// all are 0.
	Failing map[string]int
}

// ControllerStopped reports that Warm ends and all sources have stopped. A controller starts only
// once.
type ControllerStopped struct {
	Controller string
	// Of is as in ControllerStarted.
	Of any
}

// Awaited reports, before a Reconcile, that its key stopped waiting for its own writes, or the
// events of other informers, to appear in the cache, or that some writes cannot be waited for.
type Awaited struct {
	Controller string
	// Took is the time for which the key waited.
	Took time.Duration
	// Expired reports whether the wait reached its limit (ReadYourWrites).
	Expired bool
	// Doubts describes the writes and events that the next Reconcile may not see, or is nil.
	Doubts error
}

// Takeover reports the start of a term after a graceful release, unless ReadYourWrites is off. The
// first Reconcile waits until the caches contain what the previous leader wrote and had read.
type Takeover struct {
	Controller string
	Took       time.Duration // of the wait
	// Writes counts the resources that the previous leader has written or read, including those
	// outside this controller's scopes.
	Writes int
	// Expired reports whether the wait reached its limit (ReadYourWrites).
	Expired bool
	// Doubts describes the writes that the Reconciles may not see, or is nil.
	Doubts error
}

// Slow reports once a Reconcile that has run for longer than SlowAfter of controller.Options. It is
// sent by another goroutine.
type Slow struct {
	Controller  string
	Key         string
	ReconcileID string
	Took        time.Duration
	// Stack is the stack of its goroutine, at most 16 KiB, or a note that the Reconcile has ended.
	Stack string
}

// Fight reports once that a key and another writer overwrite each other's changes of an object. The
// key is slowed down. It is sent by another goroutine.
type Fight struct {
	Controller string
	Key        string
	// Write is the key's last write of the object, such as "patch configmaps default/web".
	Write string
	// Fields are the paths of the fields, such as .spec.replicas.
	Fields []string
	// By has the field managers of the other writers, as far as they are known.
	By []string
}
