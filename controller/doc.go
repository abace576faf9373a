// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller runs a reconciler: sources fill a queue with keys, workers take a key each,
// call Reconcile, and settle the key by the result.
//
//	c := controller.New("website", &reconciler{…}, controller.Options{Workers: 8})
//	c.Watch(source.Kind(websites, handler.Self(), handler.GenerationChanged))
//	c.Watch(source.Kind(deployments, handler.Owner(websites)))
//	c.Reads(secrets) // read in Reconcile, but not watched
//	mgr.Add(c)
//
// # Phases
//
// [Controller.Warm] runs the sources and fills the queue, on every replica. [Controller.Lead] runs
// the workers for one term of leadership. A manager calls both. [Controller.Run] does both for a
// controller without a manager.
//
// # Results
//
// A Reconcile settles its key in exactly one way:
//
//	returned                      queue verb  meaning
//	Result{}, nil                 Done        resets the attempts
//	Result{RequeueAfter: d}, nil  After       resets the attempts; due again after d
//	any, err                      Retry       backoff, doubled each time; not before RequeueAfter
//	any, RetryAfter(err, d)       Retry       due again after d
//	any, Stale(ctx)               Park        due again when its caches are current; no failure
//	any, Terminal(err)            Done        logged, not retried
//	any, err, after ctx ended     Release     unchanged, for the next worker or term
//
// A key that fails during an outage does not wait for the end of its backoff. It is due as soon as
// one of the controller's informers recovers. This includes failures shortly before the informers
// notice the outage. An explicit delay, for example from [RetryAfter], still applies.
//
// # Read your writes
//
// A Reconcile sees the writes of its key's previous Reconcile. The controller records them in a
// [ledger.Ledger]. It parks the key until every informer that it watches or Reads shows them. The
// workers continue with other keys.
//
// This needs two things: requests use the Reconcile's context, and the client is built from the
// configuration of a client.Client.
//
//	written                          visible when
//	an object at a version           the store, or its object, is at that version or newer
//	a delete, or the last finalizer  the store has no object with that UID
//	a delete that only marks         the store has the object at the version of the mark
//	deletecollection, eviction       the object with that UID is gone or marked
//	any write with a lost answer     the store has what the API server has when it is asked
//	outside an informer's scope      at once; with selectors, if the store does not have the object
//	a kind that is not declared      at once
//
// The key also waits for an informer that fails. After [Options].ReadYourWrites the Reconcile
// starts anyway: [Stale] names the missing writes, and hook.Controller.Awaited reports them. When
// the informer recovers, the next Reconcile waits for those writes again.
//
// The answer to a write is lost if the connection breaks or the API server returns a 5xx. After one
// second a worker lists the metadata of the object, or of its namespace if the name is unknown. A
// write that the API server carries out after that list is missed. To be safe from duplicates even
// then, do not use generateName.
//
// Not covered:
//
//   - Reads in the same Reconcile. Use the object that the write returned.
//   - Writes of other keys, controllers and processes.
//   - client-go's fake clientsets, which have no transport.
//   - Lost answers, if only a host's informers keep the object and no cache has adopted them.
//   - Versions that are not numbers. Stale then names the write.
//
// Another client may delete a new object of the key while a watch is interrupted, and no event
// comes. Such a key is reconciled once more after the relist ([EventRelisted]).
//
// A manager may replace a controller by another of the same name. The new one then waits for the
// old one's writes before its first Reconcile.
//
// # Takeover
//
// If the previous leader released its term, the first Reconcile of the new term waits until the
// informers show that leader's writes. The wait covers the newest [term.MaxHandedOver] objects that
// were written with a Reconcile's context ([term.Term.Inherited]). It lasts at most
// [Options].ReadYourWrites; then [Stale] names what is missing. If a field selector other than
// metadata's may exclude a write, the wait lasts until the informer is past its version. Nothing is
// promised after a crash.
//
// # Own writes during a backoff
//
// After an error, events of the key's own writes do not end its backoff, whether they come before
// or after the Reconcile returns. Changes by other clients end it. When the controller cannot tell,
// for example after a relist, the event ends it. A patch or apply without a resourceVersion may be
// a no-op: the returned version counts as the key's own write. After a success, an own write makes
// the key due.
//
// # Hot loops
//
// A key may keep making itself due, by its own writes or by a RequeueAfter below 100 ms. After 100
// Reconciles in a row, each less than 100 ms after the previous one began, the key is slowed down.
// Its Reconciles then begin at least 10 ms apart, then 20 ms, up to 1 s. The log names the key and
// the cause once. Any other reason starts a Reconcile at once and ends the row. While the key
// waits, Quiet and the manager's Idle wait for it. Own writes are not recognized if
// [Options].ReadYourWrites is negative.
//
// # Guarantees
//
//   - C1: At most one Reconcile runs per key.
//   - C2: An error requeues the key with backoff. A success resets the backoff.
//   - C3: RequeueAfter replaces the timer that an earlier Reconcile of the key set.
//   - C4: A terminal error is logged, reported to the hooks, and not retried.
//   - C5: A panic is an error with its stack, and runtime.Goexit is an error. Neither loses the key
//     or the worker.
//   - C6: A Reconcile sees its key's previous writes, per object by UID and version, or
//     [Options].ReadYourWrites is over. It waits for requests in flight. A write that begins after
//     its Reconcile returned fails with a [ledger.LateWriteError], and is logged once.
//   - C7: After an error, the key's own writes do not end its backoff; changes by others do.
//   - C8: A stop takes no new key. Running Reconciles have the grace time; then their context ends
//     with a cause. An error after that is no failure, and the key is due in the next term. One
//     second later, the log has the stacks of those that still run.
//   - C9: A Reconcile that exceeds its deadline or [Options].SlowAfter is reported once, with its
//     stack.
//   - C10: Every Reconcile has a recorded reason: events, the error that it retries
//     ([EventRetryConflict] and others), or the queue's own ([workqueue.EventAfter]).
//   - C11: A key that the program or its object's annotation pauses is not reconciled until neither
//     does. Then it is due for everything that it missed.
//   - C12: With [Options].Interrupt, a change of the object's generation by another client cancels
//     its Reconcile; in doubt it does not. This is no failure, and happens at most that many times
//     in a row.
//   - C13: A key in a hot loop is slowed down to one Reconcile a second. Changes by others are
//     never delayed.
//   - L9: The first Reconcile of a term sees the writes of the previous term, if that was released,
//     or [Options].ReadYourWrites is over.
//   - S9: Workers start when everything that is watched or read is synced, or in trouble that the
//     log names, such as a missing or forbidden API. Reads then return the last known state, and
//     [Stale] names it. The log reports a later sync.
//
// # The log
//
// [Logger] returns the logger of a Reconcile, with controller, key, reconcileID and attempt.
// klog.FromContext and logr's functions return the same one. Errors are logged at level error. The
// level is info for conflicts, "already exists", throttling (429), and requests that are refused
// because the term is over.
//
// For each cause the log has the first ten failures, then one in ten seconds with the number left
// out ("unlogged"). Errors have the same cause if the API server gave the same reason, or if their
// innermost errors differ only in digits and quoted text. [Controller.Snapshot] has every key's
// last error.
//
// # Concurrency
//
// Workers call Reconcile concurrently, for different keys. All methods may be called at any time
// and from any goroutine, unless they document otherwise. Warm starts one goroutine for each source
// and one for each input until it is synced. Lead starts one for each worker and one that watches
// for slow Reconciles. Both join theirs before they return.
package controller
