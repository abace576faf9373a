// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Queue is the one thing that a source does with a queue.
type Queue[K comparable] interface {
	// AddAll makes keys due. It does not wait for workers.
	AddAll(keys []K, how workqueue.AddOptions)
}

// Observer is what a Queue may be besides: it sees the events of the objects that its keys name. No
// predicate hides them. So a controller heeds the annotations of what it reconciles.
type Observer[K comparable] interface {
	// Observe is called by Kind and Informer, if their handler is a handler.Identity, with the object's
	// own key, before any predicate and before the event makes the key due. It does not see resyncs, nor
	// retries. The events of one object come in order, one after another; those of different objects
	// overlap. Old and New of an Update may be different objects of one name (S3). The source calls
	// after, if not nil, once it has delivered or dropped the event, or its handler has failed. Both
	// must be quick: the informer waits.
	Observe(key K, e handler.Event) (after func())
}

// Source delivers keys of type K. It belongs to one controller. All methods but Run may be called at
// any time, from any goroutine.
type Source[K comparable] interface {
	// Validate returns, before anything runs, what is wrong with the arguments.
	Validate() error
	// Run delivers to q until ctx is done, joins what it started, and returns: then nothing is
	// delivered any more. It is called once. An error means that the source could not start; State
	// reports trouble with the API server.
	Run(ctx context.Context, q Queue[K], h *hook.Source) error
	// WaitForSync returns nil once everything that there was at the start has been handled. If ctx ends
	// before, it returns an error with the state.
	WaitForSync(ctx context.Context) error
	// Settled returns nil once the source is synced, or is in trouble that Stale and State name. If ctx
	// ends before, it returns an error with the state.
	Settled(ctx context.Context) error
	// Stale returns nil while the source brings every change as it happens, or else why it does not.
	Stale() error
	// State reports where the source stands, for people: counting takes time.
	State() State
	// String names the source in reports.
	String() string
}

// CatchingUp is what a Source may be besides: each of this package is. It is for tests and scripts
// that wait until all that they have changed has made its keys due.
type CatchingUp interface {
	// CatchUp returns nil once the source has handled all that there was at the call. For Kind that is
	// what the API server had (see cache.Handle.CatchUp), and failed events that are to be tried
	// again; for a Channel what it holds; for a Ticker a poll that runs. A Kind whose kind is not
	// served has nothing to handle. If ctx ends before, the error names what is missing. It returns an
	// error at once if the source has stopped, or is an Informer, which cannot be compared with the
	// API server.
	CatchUp(ctx context.Context) error
}
