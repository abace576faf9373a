// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller runs Reconcile: N workers over one queue, filled by sources.
//
// # Usage
//
//	c := controller.New("website", &reconciler{…}, controller.Options{Workers: 8})
//	c.Watch(source.Kind(websites, handler.Self(), handler.GenerationChanged))
//	c.Watch(source.Kind(deployments, handler.Owner(websites)))
//	c.Reads(secrets) // read, not watched: still waited for
//	mgr.Add(c)
//
// A controller has two phases. [Controller.Warm] keeps it current: sources run and the queue fills, on every replica.
// [Controller.Lead] lets it act: workers take keys, for one term of leadership. A manager runs both; so does
// [Controller.Run], for a controller on its own.
//
// Each worker loops over processNextItem: take a key, call Reconcile, settle the key in exactly one way:
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
// again as soon as one of them has recovered: the API server is most likely back, and a backoff may
// have become long. An error that names its own delay, as [RetryAfter] does, keeps it.
//
// # What a Reconcile may count on
//
// Its reads show what its key has written before (C6), if it made the requests with its context and
// a client that was built from the configuration of a client.Client: that client's ledger records
// the versions that were written. Before a key is reconciled again, every informer that the
// controller watches or Reads must show them. Until then the key is parked, and the workers go on
// with other keys.
//
//	what was written                       is shown when
//	an object, at a version                the informer's store is at that version, or has that object at it or a newer one
//	a delete, or the last finalizer taken  the store does not have the object of that UID any more
//	a delete that only marks               the store has the object at the version of the mark
//	deletecollection, eviction             the object of that UID is gone or marked
//	anything, and the answer was lost      the API server was asked what it has, and the store has the same
//	what is outside an informer's scope    is not waited for: another namespace or name, or selectors exclude the object
//	                                       and the store does not have it
//	a kind without a declared informer     is not waited for
//
// An informer that fails is waited for like one that lags. After [Options].ReadYourWrites the
// Reconcile starts even so: [Stale] names what it may not see, and hook.Controller.Awaited reports
// it. Writes that were given up because their informer failed are waited for again once it has
// recovered. The answer to a write is lost if the connection breaks or the API server answers with a
// 5xx. A second later a worker asks for the metadata of the object, or of its namespace if the name
// is not known. A write that the API server carries out after that is not waited for; to be safe from
// duplicates even then, use names that are not generated.
//
// Not covered are reads within the same Reconcile (use what the write returned), writes of other
// keys, other controllers and other processes, informers of a host that no cache has adopted if the
// answer was lost, and versions that are not numbers: there Stale names the write. With client-go's
// fake clientsets, which have no transport, nothing is waited for.
//
// If another client deletes what a key has just created while a watch is interrupted, the informer may
// list everything again without having seen either, and no event comes. Such a key is reconciled once
// more after the list ([EventRelisted]).
//
// A goroutine that a Reconcile leaves behind can read with its context, but not begin a write: see
// [ledger.LateWriteError].
//
// When a controller is removed from a manager and another of the same name is added, the other one
// waits for the first one's writes before its first Reconcile.
//
// # Guarantees
//
// C1: one Reconcile per key at a time. C2: an error requeues with backoff, a success resets it. C3: RequeueAfter replaces the
// timer that this controller set before for the key. C4: a terminal error is not retried, and is logged and hooked. C5: a
// panic in Reconcile is an error with its stack; the end of its goroutine (runtime.Goexit) is an error, too. Neither the key
// nor the worker is lost.
//
// C6: read your writes. In one process, Reconcile(key) starts only when every informer that its controller watches or declared
// shows the writes of the previous Reconcile(key), per object by UID and version; the key waits,
// the worker does not. A write that begins after its Reconcile has returned, with its context, is
// refused with a [ledger.LateWriteError] and logged once. One that is still under way is waited
// for. The key waits through failures of an informer, too, up to [Options].ReadYourWrites; then
// [Stale] names what is missing. Lost answers are asked about. A Reconcile that returns Stale is
// parked, which is no failure. A change that no informer saw because it listed everything again is
// made up for by another Reconcile.
//
// C7: after an error, the key's own writes do not cut its backoff short, whether their events arrive before or after its end. After
// a relist, which may merge several changes, and wherever it is in doubt, they do; other changes always do. (Of a patch or an apply
// nobody can tell that it has changed nothing, unless it names a version: it counts as having made the one that it found.) After a
// success an own write wakes the key as any change does.
//
// C8: on a stop no new key is taken, and running Reconciles go on, on a live context, until the grace time is over; then their
// context is cancelled with a cause, and an error after that does not count as a failure: the key is due in the next term. One that
// does not heed that is in the log a second later, with its stack.
//
// C9: a Reconcile that is over its deadline, or runs for longer than [Options].SlowAfter, is reported once, with the stack of its
// goroutine.
//
// C10: every Reconcile has at least one recorded reason: of the events that made its key due, of the error that it is a retry of
// ([EventRetryConflict] and so on), or of the queue's own ([workqueue.EventAfter]).
//
// C11: a key that is paused, by the program or by its object's annotation, which no filter hides, is not reconciled until neither
// holds, and then for all that it was due for.
//
// C12: a Reconcile is interrupted only if that was asked for, when the generation of its object moves on by somebody else's doing (in
// doubt it is not), and at most so often in a row. That is no failure.
//
// C13: a key that makes itself due 100 times in a row, each time less than 100 ms after the
// Reconcile before began, is slowed down. It makes itself due by its own writes (C7 states which
// events are recognized) or by a RequeueAfter shorter than 100 ms. From then on its Reconciles
// begin at least 10 ms apart, then 20 ms, and so on up to 1 s. The log names the key and the cause
// once. A Reconcile with any other reason, such as another client's change or
// [Controller.Requeue], begins at once and ends the row. Own writes are not recognized if
// [Options].ReadYourWrites is negative. While such a key waits it counts as busy (W12, M7).
//
// L9: the first Reconcile of a term starts only when every informer that the controller watches or declared shows what was written
// under the term before, if that was released ([term.Term.Inherited]): at most [term.MaxHandedOver] objects, the newest, of
// requests made with the context of a Reconcile. It is bounded by [Options].ReadYourWrites; then [Stale] says what is missing.
// hook.Controller.TookOver is told how long it took. Whether selectors of labels exclude a write is known, of fields other than
// metadata's it is not: such a write is waited for until the informer is past its version. After a crash nothing is promised.
//
// S9: workers start when everything that is watched or read is synced, or in trouble that the log names (its API is missing or
// forbidden, say): one such kind does not stop the workers of its own controller. What is read meanwhile is the last known state,
// and [Stale] says so in a Reconcile. The log says when it is synced after all.
//
// # While it runs
//
// [Controller.SetWorkers], [Controller.Pause], [Controller.PauseKey], [Controller.Requeue] and [Controller.SetLogLevel] may be called
// at any time. Whoever may change an object can pause and requeue it by annotation: [PausedAnnotation], [RequeueAnnotation].
// [Options].IgnoreAnnotations turns that off. [Options].Interrupt has a Reconcile cancelled when
// its object moves on. [Controller.Progress] and [Controller.Alive] report whether it gets on,
// [Controller.Snapshot] everything.
//
// # The log
//
// [Logger] returns the logger of a Reconcile, with controller, key, reconcileID and attempt.
// klog.FromContext and logr's functions return the same one. Keys and durations are logged as text.
// Errors are logged at level error, but for what is normal: conflicts, "already exists", requests
// for a pause, and requests that the fence refuses because the term is over (L2) are logged at
// level info, and retried.
//
// Of failures with the same cause, the log has the first ten and then one in ten seconds, which counts
// those left out ("unlogged"). Errors have the same cause if the API server gave the same reason, or if
// their innermost errors differ only in digits and in what is quoted. Every key's last error is in
// [Controller.Snapshot].
//
// # Concurrency
//
// Lead starts one goroutine per worker, and two that look after slow Reconciles, and joins them; SetWorkers starts more, which Lead
// joins. Warm starts one per source, and one more for it and for each thing that is
// read until it is synced, and joins them. Reconcile is called by as many goroutines at once as there are workers, never twice at
// once for one key. Sources may be watched and unwatched at any time; [Controller.Unwatch] joins the source's goroutines.
package controller
