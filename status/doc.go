// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package status computes, writes and awaits the conditions of an object's status.
//
//	s := status.For(site, site.Status.Conditions)
//	s.True("Available", "AllReady", "3 of 3 servers are ready")
//	s.False("Published", "Waiting", "the index is being written")
//	s.Summarize(status.Ready, "Available", "Published")
//
// [For] returns a [Set]: the conditions of one object while a Reconcile computes them. Each
// condition that is set gets the generation of the object as its observedGeneration. Its
// lastTransitionTime changes only if its status (True, False or Unknown) changes. So the bytes of
// an unchanged set do not change, and the API server stores nothing and sends no event.
//
// # Writing
//
// [Apply] and [Update] write the status. If it was computed for an older generation of the object
// than the API server has, they return an [OutdatedError] instead. Return it from Reconcile: the
// controller retries it like a conflict, without an error in the log.
//
//	// server-side apply: only the conditions that this Reconcile has set, summarized or kept
//	desired := websiteac.Website(site.Name, site.Namespace).WithStatus(websiteac.WebsiteStatus().
//		WithConditions(s.ApplyConfigurations()...))
//	_, err = status.Apply(ctx, client.For[*v1alpha1.Website](c), s, desired)
//
//	// update: all conditions of the object
//	site.Status.Conditions = s.Conditions()
//	_, err = status.Update(ctx, client.For[*v1alpha1.Website](c), s, site)
//
// A [Writer] delays them, so that several Reconciles within a short time cause one write.
//
// Both also return the mistakes of the Set, and then send nothing. If several controllers write
// conditions of an object, use Apply. The CRD must have listType=map and listMapKey=type for the
// conditions.
//
// # kstatus
//
// Tools such as Flux, kpt and Helm compute one state of an object with the library kstatus. For
// kinds that kstatus does not know, the first line that fits decides:
//
//	the object has                                             state
//	a deletionTimestamp                                        Terminating
//	a status.observedGeneration that is not its generation     InProgress
//	the condition Reconciling=True                             InProgress
//	the condition Stalled=True                                 Failed
//	the condition Ready, but not True                          InProgress
//	anything else, even no condition                           Current
//
// [Set.Current], [Set.InProgress] and [Set.Failed] set [Ready], [Reconciling] and [Stalled] so that
// the tools see that state. If the status has the field observedGeneration, write it in the same
// request: without it, an object with a new spec stays Current until its next Reconcile.
//
// The rules are from pkg/kstatus/README.md in sigs.k8s.io/cli-utils.
//
// # Waiting
//
// [Await] waits in a program or a test until an object has conditions that are current.
//
// Stability: stable.
package status
