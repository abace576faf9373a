// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"time"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Source delivers keys to one controller. It may also have these methods:
//
//	// Validate returns an error if the arguments are wrong. It is called before Run.
//	Validate() error
//
//	// Replay delivers every object again, as at the start, for RequeueAll. It returns nil when the
//	// source has handled them. If ctx ends first, or the source has stopped, it returns an error.
//	Replay(ctx context.Context) error
//
//	// CatchUp returns nil once the source has handled everything that existed at the call. It is for
//	// tests and scripts, such as Manager.Idle. If ctx ends first, the error names what is missing.
//	CatchUp(ctx context.Context) error
//
// The sources of this package have all that apply.
type Source[K comparable] interface {
	// Run delivers until ctx is done, joins what it started, and returns. It delivers nothing after
	// that. Call it once. It returns an error if the source could not start. Status reports trouble
	// with the API server.
	Run(ctx context.Context, to Sink[K]) error
	// Status returns the same pointer at each call.
	Status() *Status
	// String names the source in reports.
	String() string
}

// Sink receives what a source delivers. It may get fields.
type Sink[K comparable] struct {
	Queue interface {
		// AddAll adds keys. It does not wait for workers.
		AddAll(keys []K, how workqueue.AddOptions)
	}
	// Observer may be nil if no controller runs the source.
	Observer Observer[K]
}

// Observer receives what a source reports beside keys. It may get methods. All of them must be
// quick: the source waits.
type Observer[K comparable] interface {
	// Observe receives an event and its object's key from a Kind whose handler is a
	// handler.Identity, but no resyncs and retries. A controller reads the object's annotations. It
	// runs before the predicates, also if one drops the event, and before the event adds the key.
	// The events of one object come in order, one after another. Events of different objects may
	// overlap. Old and New of an Update may be different objects with the same name. Objects that
	// are stored as bytes are not decoded: they have only metadata.
	//
	// The source calls after, unless nil, once it has delivered or dropped the event, or its
	// handler has failed.
	Observe(key K, e handler.Event) (after func())
	// Dropped, HandlerFailed, HandlerBlocked and PollFailed become the events of package hook.
	Dropped(reason string)
	HandlerFailed(object string, err error)
	HandlerBlocked(after time.Duration)
	PollFailed(err error)
}
