// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Queue receives the keys of a source.
type Queue[K comparable] interface {
	// AddAll adds keys. It does not wait for workers.
	AddAll(keys []K, how workqueue.AddOptions)
}

// Observer is an optional interface of a Queue for the events of the objects that the keys name,
// including those that a predicate drops. A controller reads the objects' annotations with it.
type Observer[K comparable] interface {
	// Observe receives an event and its object's key from a Kind whose handler is a
	// handler.Identity, but no resyncs and retries. It runs before the predicates, and before the
	// event adds the key. The events of one object come in order, one after another. Events of
	// different objects may overlap. Old and New of an Update may be different objects with the
	// same name. Objects of a packed cache are not decoded: they have only metadata.
	//
	// The source calls after, unless nil, once it has delivered or dropped the event, or its
	// handler has failed. Both must be quick, because the informer waits.
	Observe(key K, e handler.Event) (after func())
}

// Source delivers keys to one controller. All methods except Run may be called at any time, from
// any goroutine.
type Source[K comparable] interface {
	// Validate returns an error if the arguments are wrong.
	Validate() error
	// Run delivers to q until ctx is done, joins what it started, and returns. It delivers nothing
	// after that. Call it once; h may be nil. It returns an error if the source could not start.
	// State reports trouble with the API server.
	Run(ctx context.Context, q Queue[K], h *hook.Source) error
	// WaitForSync returns nil once the handler has seen everything that existed at the start. If
	// ctx ends first, the error has the state.
	WaitForSync(ctx context.Context) error
	// Settled returns nil once the source is synced, or has a problem that Stale and State name. If
	// ctx ends first, the error has the state.
	Settled(ctx context.Context) error
	// Stale returns nil while the source delivers every change as it happens, else the reason.
	Stale() error
	// State returns the current state. Counting takes time, so do not call it often.
	State() State
	// String names the source in reports.
	String() string
}

// CatchingUp is an optional interface of a Source, for tests and scripts. All sources of this
// package have it.
type CatchingUp interface {
	// CatchUp returns nil once the source has handled everything that existed at the call:
	//
	//   - a Kind: what the API server had (see cache.Handle.CatchUp), and failed events. A kind
	//     that is not served has nothing to handle.
	//   - a Channel: its events.
	//   - a Ticker: a poll in progress.
	//
	// If ctx ends first, the error names what is missing. A stopped source returns an error at
	// once, and so does a Kind that cannot be compared with the API server.
	CatchUp(ctx context.Context) error
}
