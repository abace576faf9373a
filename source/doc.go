// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package source is where events come from. A [Source] turns changes into keys on a controller's queue:
//
//	source.Kind(websites, handler.Self(), handler.GenerationChanged)          // the objects of a cache's handle
//	source.Informer[*corev1.Pod](pods, handler.Owner(websites))               // those of an informer of the host
//	source.NewChannel("orders", 100, func(ctx context.Context, o Order) …)    // events from the program
//	source.Ticker("buckets", time.Minute, func(ctx context.Context) …)        // polls
//
// A controller can add and remove a source at any time. [Source.State] reports where it stands, what
// it will try again, and how many events it dropped, by reason.
//
// # Guarantees
//
// S1: a source is ready only when its handler has seen every object of the initial list. A channel
// has none; a ticker is ready when its poll has succeeded once.
//
// S2: an object that was deleted unseen is a delete with the last known state, marked as stale.
//
// S3: a name that returns with a new UID is a delete and a create, even if the informer saw an update.
//
// S8: a handler or predicate that panics or returns an error loses nothing. A goroutine of the source
// tries the event again, with backoff. At most one event waits per object: a later one is merged with
// it and tried at once. The oldest Old and the newest New are kept, and the last known state of a
// delete; states between them are not mapped. Failures go to the hook; State has the last reason.
//
// S9: a source that cannot list, because its API is missing or forbidden, is settled. Its State and
// Stale report why, and workers do not wait for it.
//
// # Concurrency
//
// [Source.Run] starts one goroutine for failed events, one for resyncs and one that watches for
// handlers that block, and joins them. Informers call on goroutines of their own. A handler sees the
// events of one object one after another, in order; those of different objects overlap. Channels and
// tickers call from Run's goroutine, one event or poll after another.
package source
