// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller runs Reconcile: N workers over one queue, filled by sources.
//
//	c := controller.New("website", &reconciler{…}, controller.Options{Workers: 8})
//	c.Watch(source.Kind(websites, handler.Self(), handler.GenerationChanged))
//	c.Watch(source.Kind(deployments, handler.Owner(websites)))
//	c.Reads(secrets) // read, not watched: the workers wait for it, too
//	mgr.Add(c)
//
// A controller has two phases. [Controller.Warm] keeps it current: sources run and the queue fills,
// on every replica. [Controller.Lead] lets it act: workers take keys, for one term of leadership. A
// manager runs both. [Controller.Run] does for a controller on its own.
//
// Each worker takes a key, calls Reconcile, and settles the key in exactly one way:
//
//	returned                       settled as
//	Result{}, nil                  Done: attempts are forgotten
//	Result{RequeueAfter: d}, nil   After d: as Done, and due again after d
//	any, err                       Retry: due again after a backoff that doubles, and not before RequeueAfter
//	any, RetryAfter(err, d)        Retry: due again after d
//	any, Stale(ctx)                Park: due again when its caches are current; no failure
//	any, Terminal(err)             Done: reported, not retried
//	any, err, ctx has ended        Release: as it was, for the next worker or term
//
// A key that failed during an outage, or just before its controller's informers noticed it, is due
// again as soon as one of them has recovered. An error with a delay of its own, as from [RetryAfter],
// keeps that.
//
// # Read your writes
//
// Reconcile's reads show what its key has written before (C6). For that, make requests with its
// context and a client that was built from the configuration of a client.Client: its ledger records
// the versions that were written. Until every informer that the controller watches or Reads shows
// them, the key is parked, and the workers go on with other keys.
//
//	what was written                       is shown when
//	an object, at a version                the informer's store is at that version, or has that object at it or a newer one
//	a delete, or the last finalizer taken  the store does not have the object of that UID any more
//	a delete that only marks               the store has the object at the version of the mark
//	deletecollection, eviction             the object of that UID is gone or marked
//	anything, and the answer was lost      the API server was asked what it has, and the store has the same
//	outside an informer's scope            at once: another namespace or name, or selectors exclude the object
//	                                       and the store does not have it
//	a kind without a declared informer     at once
//
// The key also waits for an informer that fails. After [Options].ReadYourWrites the Reconcile starts
// anyway: [Stale] names what it may not see, and hook.Controller.Awaited reports it. Once the
// informer has recovered, the next Reconcile waits for those writes again.
//
// The answer to a write is lost if the connection breaks or the API server answers with a 5xx. A
// second later a worker asks for the metadata of the object, or of its namespace if the name is not
// known. A write that the API server carries out after that is not waited for. To be safe from
// duplicates even then, do not use generateName.
//
// Not covered are reads within the same Reconcile (use what the write returned), writes of other
// keys, controllers and processes, and client-go's fake clientsets, which have no transport. Nor are
// lost answers if only informers of a host keep the object and no cache has adopted them. If versions
// are not numbers, Stale names the write.
//
// If another client deletes what a key has just created while a watch is interrupted, no event may
// come. Such a key is reconciled once more after the relist ([EventRelisted]).
//
// When a manager replaces a controller by another of the same name, that one waits for the writes of
// the first before its first Reconcile.
//
// # Guarantees
//
// C1: one Reconcile per key at a time.
//
// C2: an error requeues with backoff, a success resets it.
//
// C3: RequeueAfter replaces the timer that this controller set before for the key.
//
// C4: a terminal error is not retried, and is logged and hooked.
//
// C5: a panic in Reconcile is an error with its stack. The end of its goroutine (runtime.Goexit) is
// an error, too. Neither the key nor the worker is lost.
//
// C6: read your writes, as above: per object by UID and version, bounded by [Options].ReadYourWrites.
// A write that begins after its Reconcile has returned, with its context, is refused with a
// [ledger.LateWriteError] and logged once. The key waits for one that is still under way.
//
// C7: after an error, events of the key's own writes do not cut its backoff short, whether they come
// before or after its end. In doubt they do, for example after a relist, which may merge several
// changes. A patch or apply without a resourceVersion may be a no-op: the returned version counts as
// its own write. Other changes always cut it short. After a success an own write wakes the key.
//
// C8: on a stop no new key is taken, and running Reconciles go on until the grace time is over. Then
// their context ends with a cause; an error after that is no failure, and the key is due in the next
// term. If a Reconcile does not heed that, the log has its stack a second later.
//
// C9: a Reconcile that is over its deadline, or runs longer than [Options].SlowAfter, is reported
// once, with its stack.
//
// C10: every Reconcile has at least one recorded reason: the events that made its key due, the error
// that it retries ([EventRetryConflict] and so on), or the queue's own ([workqueue.EventAfter]).
//
// C11: a key that is paused, by the program or by its object's annotation, is not reconciled until
// neither holds, and then for all that it was due for.
//
// C12: with [Options].Interrupt, a Reconcile is interrupted when another client moves the generation
// of its object on; in doubt it is not. That is no failure, and happens at most so often in a row.
//
// C13: a key that makes itself due 100 times in a row, each less than 100 ms after the Reconcile
// before began, is slowed down: by its own writes (as in C7) or by a RequeueAfter shorter than
// 100 ms. Its Reconciles then begin at least 10 ms apart, then 20 ms, up to 1 s, and the log names
// the key and the cause once. A Reconcile with any other reason begins at once and ends the row. Own
// writes are not recognized if [Options].ReadYourWrites is negative. While it waits, such a key
// counts as busy (W12, M7).
//
// L9: the first Reconcile of a term starts when the controller's informers show the writes of the
// previous term, if that was released ([term.Term.Inherited]): the newest [term.MaxHandedOver]
// objects, of requests made with a Reconcile's context. It is bounded by [Options].ReadYourWrites;
// then [Stale] names what is missing. If a write may be excluded by field selectors other than
// metadata's, it waits until the informer is past its version. Nothing is promised after a crash.
//
// S9: workers start when everything that is watched or read is synced, or in trouble that the log
// names, such as a missing or forbidden API. Reads of that return the last known state, and [Stale]
// names it. The log reports when it is synced after all.
//
// # The log
//
// [Logger] returns the logger of a Reconcile, with controller, key, reconcileID and attempt;
// klog.FromContext and logr's functions return the same one. Errors are logged at level error, normal
// ones at level info: conflicts, "already exists", requests for a pause, and requests that are
// refused because the term is over (L2).
//
// Of failures with the same cause, the log has the first ten and then one in ten seconds, which
// counts those left out ("unlogged"). Errors have the same cause if the API server gave the same
// reason, or if their innermost errors differ only in digits and quoted text. [Controller.Snapshot]
// has every key's last error.
//
// # Concurrency
//
// Warm starts one goroutine for each source, and one for each input until it is synced, and joins
// them. Lead starts one for each worker, and one that looks after slow Reconciles, and joins them.
// Workers call Reconcile at the same time, but never twice at once for one key. All methods may be
// called at any time unless they say otherwise.
package controller
