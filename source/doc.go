// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package source delivers events to a controller: a [Source] turns changes into keys on the
// controller's queue.
//
//	source.Kind(websites, handler.Self(), handler.GenerationChanged)          // the objects of a cache's handle
//	source.NewChannel("orders", 100, func(ctx context.Context, o Order) …)    // events from the program
//	source.Ticker("buckets", time.Minute, func(ctx context.Context) …)        // polls
//
// A controller can add and remove sources at any time. cache.Adopt makes a handle of an informer
// that the host program runs.
//
// # Guarantees
//
//   - S1: A source is ready when its handler has seen every object of the initial list, and not
//     before. Details: a channel has no initial list. A ticker is ready after its first
//     successful poll.
//   - S3: If an object returns under its name with a new UID, the handler sees a delete and a
//     create. Details: even if the informer saw an update.
//   - S8: If a handler or predicate fails, the event is retried. While it fails or blocks, at
//     most one event waits for each object. Details: a handler or predicate that panics, returns
//     an error or blocks loses no event. See Retries and Blocked handlers.
//
// For S2 (package cache), a missed deletion arrives as a delete with the last known state, marked
// as stale. For S9 (package cache), a source that cannot list, because its API is missing or
// forbidden, counts as settled. State and Stale report the reason, and workers do not wait for it.
//
// # Retries
//
// The feed of a Kind makes the Event, asks the predicates and the handler, and adds the keys. Every
// event passes through the retries, which keep the events of an object in order. A goroutine of the
// source retries failed events with backoff. At most one event per object waits. A later event is
// merged with it and tried at once. The merged event has the oldest Old and the newest New, or the
// last known state of a delete: the handler does not see the states between them. Failures go to
// the hook, and State has the last error.
//
// # Blocked handlers
//
// While a call of the handler takes a second or more, one event of each object waits for it, merged
// in the same way. At most eight events of an object wait at any time, and State counts all that
// wait. A handler that keeps up sees each event.
//
// # Concurrency
//
// Run of a Kind starts up to three goroutines and joins them: for retries, resyncs,
// and the detection of blocked handlers. A goroutine for each informer calls the handler: for each
// object one event after another, in order, and for different objects at once. Channels and tickers
// call their functions one after another from Run's goroutine.
//
// Stability: stable.
package source
