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
	AddAll(keys []K, how workqueue.How)
}

// Observer is what a Queue may be besides, to see the events of the objects whose keys it is given, and not only the keys.
type Observer[K comparable] interface {
	// Observe is called by Kind and Informer, if their handler is a handler.Identity, with the object's own key and the event
	// as the informer brings it, before any filter sees it, and before it makes the key due. Resyncs are not shown, nor is an
	// event again whose handler has failed. The events of one object come in their order, one after another; those of
	// different objects overlap. Of an Update, Old and New may be different objects of one name (S3). What it returns, if not
	// nil, is called once the event was delivered, or dropped, or its handler has failed. Both must be quick: the informer waits.
	Observe(key K, e handler.Event) (after func())
}

// Source delivers keys of type K. It is given to one controller, once. All methods but Run may be called at any time, by
// anybody.
type Source[K comparable] interface {
	// Validate says, before anything runs, what is wrong with how the source was put together.
	Validate() error
	// Run delivers to q until ctx is done, joins what it started, and returns: nothing is delivered after that. It is called
	// once. An error means that the source could not start; trouble with the API server is not one (see State).
	Run(ctx context.Context, q Queue[K], h *hook.Source) error
	// WaitForSync returns nil once everything that there was at the start has been handled, and an error that says where the
	// source stands when ctx ends before.
	WaitForSync(ctx context.Context) error
	// Settled returns nil once the source is synced, or is in trouble that Stale and State name; and an error that says where
	// it stands when ctx ends before.
	Settled(ctx context.Context) error
	// Stale returns nil while the source brings every change as it happens; otherwise why it does not.
	Stale() error
	// State says where the source stands. It is for people, and not for every Reconcile: counting takes time.
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
