// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package source is where events come from. A [Source] turns changes into keys on a controller's queue:
//
//	source.Kind(websites, handler.Self(), handler.GenerationChanged)
//
// # Guarantees
//
// S1: a source is ready only when its handler has seen every object of the initial list.
//
// S2: what was deleted unseen is a delete with the last known state, marked as stale.
//
// S3: a name that returns with a new UID is a delete and a create, also where the informer saw an update.
//
// S8: a handler or filter that panics or returns an error loses nothing: the event is tried again, with backoff, on a goroutine
// of the source and not on the informer's. At most one event waits per object; of several that failed, the oldest Old and the
// newest New are kept, and states between them are not mapped. Failures go to the hook; State counts what is pending.
//
// # Concurrency
//
// [Source.Run] starts one goroutine, for failed events, and joins it; the informer calls the handler on one of its own.
// A handler sees the events of one object one after another, except that a failed event may be tried again at the same time
// as a newer one of the same object is seen for the first time.
package source
