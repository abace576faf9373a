// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package source is where events come from. A [Source] turns changes into keys on a controller's queue:
//
//	source.Kind(websites, handler.Self(), handler.GenerationChanged)          // the objects of a cache's handle
//	source.Informer[*corev1.Pod](pods, handler.Owner(websites))               // those of an informer that somebody else runs
//	source.NewChannel("orders", 100, func(ctx context.Context, o Order) …)    // events that the program brings
//	source.Ticker("buckets", time.Minute, func(ctx context.Context) …)        // something that has to be looked at
//
// A source is added to a controller, and removed from it, at any time. [Source.State] says where it stands, what waits to be
// tried again, and how many events were dropped, by reason.
//
// # Guarantees
//
// S1: a source is ready only when its handler has seen every object of the initial list. (A channel has none; a ticker is ready
// when its poll has succeeded once.)
//
// S2: what was deleted unseen is a delete with the last known state, marked as stale.
//
// S3: a name that returns with a new UID is a delete and a create, also where the informer saw an update.
//
// S8: a handler or filter that panics or returns an error loses nothing: the event is tried again, with backoff, on a goroutine
// of the source and not on the informer's. At most one event waits per object: later ones are merged with it, and then it is
// tried at once. The oldest Old and the newest New are kept, and of a delete the last known state; states between them are not
// mapped. Failures go to the hook; State counts what is pending, and has the last reason.
//
// S9: a source that cannot list, because its API is missing or forbidden, is settled: its State and Stale say why, and workers do
// not wait for it.
//
// # What no filter hides
//
// A queue that is an [Observer] is shown each event of Kind and Informer before the filters, if the handler says whose key it is
// (handler.Identity, as handler.Self does). So a controller heeds the annotations of what it reconciles.
//
// # Concurrency
//
// [Source.Run] starts a goroutine for failed events, and one for resyncs, and joins them; informers call on goroutines of their
// own. A handler sees the events of one object one after another, in order; those of different objects at the same time.
// Channels and tickers call from Run's goroutine, one event or poll after another.
package source
