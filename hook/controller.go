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
}

// Controller is what package controller reports.
type Controller struct {
	// Reconciling is called before a Reconcile function is.
	Reconciling func(controller string)
	// Reconciled is called after it.
	Reconciled func(Reconcile)
}
