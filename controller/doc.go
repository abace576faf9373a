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
//	returned                     settled as
//	Result{}, nil                Done: attempts are forgotten
//	Result{RequeueAfter: d}, nil After d: as Done, and due again after d
//	any, err                     Retry: due again after a backoff that doubles, and not before RequeueAfter
//	any, Terminal(err)           Done: reported, not retried
//	any, err, ctx has ended      Release: as it was, for whoever takes it next
//
// # Guarantees
//
// C1: one Reconcile per key at a time. C2: an error requeues with backoff, a success resets it. C3: RequeueAfter replaces the
// timer that this controller set before for the key. C4: a terminal error is not retried, and is logged and hooked. C5: a
// panic in Reconcile is an error with its stack; the end of its goroutine (runtime.Goexit) is an error, too. Neither the key
// nor the worker is lost. C8: on a stop no new key is taken, and running Reconciles go on, on a live context, until the grace
// time is over; then their context is cancelled with a cause, and an error after that does not count as a failure: the key is
// due in the next term.
//
// S9: workers start when everything that is watched or read is synced, or in trouble that the log names (its API is missing or
// forbidden, say): one such kind does not stop the workers of its own controller. What is read meanwhile is the last known state,
// and [Stale] says so in a Reconcile. The log says when it is synced after all.
//
// # Concurrency
//
// Lead starts one goroutine per worker and joins it; Warm starts one per source, and one more for it and for each thing that is
// read until it is synced, and joins them. Reconcile is called by as many goroutines at once as there are workers, never twice at
// once for one key. Sources may be watched and unwatched at any time; [Controller.Unwatch] joins the source's goroutines.
package controller
