// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// Outcome is how a reconcile ended.
type Outcome string

const (
	// Succeeded: no error, and no requeue asked for.
	Succeeded Outcome = "success"
	// RequeuedAfter: no error; the reconciler asked to be called again later.
	RequeuedAfter Outcome = "requeue_after"
	// Failed: an error; the key is retried with backoff.
	Failed Outcome = "error"
	// FailedTerminally: an error that is not retried.
	FailedTerminally Outcome = "terminal_error"
	// Panicked: a panic, turned into an error and retried.
	Panicked Outcome = "panic"
	// Stale: the reconciler returned what controller.Stale reports. Not a failure: the key is parked
	// until the caches follow the API server again.
	Stale Outcome = "stale"
	// Interrupted: an error after the work was cancelled from outside (a stop, a lost lease). Not a failure: the key is due
	// again at once, for whoever acts next.
	Interrupted Outcome = "interrupted"
)

// Reconcile is one finished call of a Reconcile function.
type Reconcile struct {
	// Controller is the controller's name.
	Controller string
	// Took is how long the call lasted.
	Took time.Duration
	// Outcome is how it ended.
	Outcome Outcome
	// Err is the error returned, if any.
	Err error
	// TimedOut says that its context ended because it was over its deadline.
	TimedOut bool
}

// ControllerStarted says that a controller has started.
type ControllerStarted struct {
	// Controller is the controller's name.
	Controller string
	// Of is the controller itself. It tells apart controllers of one name.
	Of any
	// Stats returns the controller's current figures. It is cheap, and may be called from any goroutine.
	Stats func() ControllerStats
}

// ControllerStats are a controller's figures at one moment.
type ControllerStats struct {
	// Workers is how many Reconciles may run at once, whether this replica leads or not. Active is how many do.
	Workers, Active int
}

// ControllerStopped says that a controller has stopped.
type ControllerStopped struct {
	// Controller is the controller's name.
	Controller string
	// Of is the controller, as ControllerStarted had it.
	Of any
}

// Awaited reports that a key stopped waiting for its own writes to appear in the cache, or that some
// cannot be waited for.
type Awaited struct {
	// Controller is the controller's name.
	Controller string
	// Took is for how long the key was put off.
	Took time.Duration
	// Expired says that it was put off for as long as it may be.
	Expired bool
	// Doubts is what of its writes the Reconcile that starts now may not see, and why; nil if it sees all.
	Doubts error
}

// Takeover is the beginning of a term that follows one that was released: before its first Reconcile it is waited until all is shown
// that was written under that one.
type Takeover struct {
	// Controller is the controller's name.
	Controller string
	// Took is how long it was waited.
	Took time.Duration
	// Writes is how many writes the term before has handed over, also those that no informer of this controller keeps.
	Writes int
	// Expired says that it was waited for as long as it may be.
	Expired bool
	// Doubts is what the Reconciles of the term may not see, and why; nil if they see all.
	Doubts error
}

// Slow is a Reconcile that runs for longer than it should.
type Slow struct {
	// Controller is the controller's name.
	Controller string
	// Key is the key, as text.
	Key string
	// ReconcileID is the one in the log.
	ReconcileID string
	// Took is for how long it runs.
	Took time.Duration
	// Stack is the stack of its goroutine, at most 16 KiB of it.
	Stack string
}

// Controller is what package controller reports.
type Controller struct {
	// Started is called when the controller begins to be warmed, which is before any other of these.
	Started func(ControllerStarted)
	// Stopped is called when it has been warmed, and its sources have stopped. It does not start again.
	Stopped func(ControllerStopped)
	// Awaited is called when a key that was put off because of its own writes is reconciled after all, and when one is that
	// may not see them.
	Awaited func(Awaited)
	// TookOver is called once in each term that follows one that was released, before its first Reconcile.
	TookOver func(Takeover)
	// Reconciling is called before a Reconcile function is.
	Reconciling func(controller string)
	// Reconciled is called after it.
	Reconciled func(Reconcile)
	// Slow is called once for a Reconcile that runs for longer than it should. It still runs: this is another goroutine.
	Slow func(Slow)
}
