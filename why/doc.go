// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package why explains why an object is, or is not, reconciled.
//
//	a := why.For(ctx, why.Object{Kind: "Website", Namespace: "default", Name: "web"}, mgr)
//	fmt.Print(a)
//
// prints for example
//
//	website default/web: the last 4 Reconciles failed, 12s ago; the next attempt is in 4s: configmaps is forbidden …
//	  remedy: give the ServiceAccount the right that the error names
//	  reason: Forbidden, since 2026-11-29T08:00:12Z
//	  source: Kind(Website.v1.example.com)
//	  Reconcile until 2026-11-29T08:00:12Z, for 3ms: error, read caches 1 time, sent 1 request, wrote nothing because its writes were refused; because of Retry, by queue
//
// The first line has the cause, the second what helps. The same answer as JSON has a [Reason], a
// code that does not change between versions: use it in alerts and scripts.
//
// For asks each controller that watches the object's kind. The object need not be in a queue: For
// looks for it in the caches, and calls the predicates and the handler of each source with it, as
// if it had just been created, and as an update without a change. So they must have no side
// effects. A source does this for one caller at a time, and For gives up after one second. A panic
// becomes part of the answer. A call that does not return delays the stop of its source.
//
// Each source compares the version in its cache with the API server's: one list request for the
// object's metadata, which the right to list allows. Answers have names, versions, paths of fields,
// and the texts of errors, but no other content of objects.
//
// If package children finds that children are not ready, the evidence about their owner names them,
// until its next Reconcile. It may have texts of their status conditions.
//
// The last Reconciles come from the memory of the process (controller.History). After a restart
// they are gone, and the answer says since when.
//
// For is for people and tests. It is safe for concurrent use, and does not disturb Reconciles.
//
// Stability: settling.
package why
