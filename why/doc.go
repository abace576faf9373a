// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package why explains why an object is, or is not, reconciled.
//
//	a := why.For(ctx, why.Object{Kind: "Website", Namespace: "default", Name: "web"}, mgr)
//	fmt.Print(a)
//
// prints for example
//
//	website default/web: it failed 4 times in a row, the last time 12 s ago, and is retried in 4 s: configmaps is forbidden …
//	  remedy: give the ServiceAccount the right that the error names
//	  reason: Forbidden, since 2026-11-29T08:00:12Z
//	  added by Kind(*v1alpha1.Website): Update of default/web at 812
//
// The first line has the cause, the second what helps. The same answer as JSON has a [Reason], a
// code that does not change between versions: use it in alerts and scripts.
//
// For asks each controller that watches the object's kind. The object need not be in a queue: For
// looks for it in the caches, and calls the predicates and the handler of each source with it, as
// if it had just been created, and as an update without a change. So they must have no side
// effects. A source does this for one caller at a time, and For gives up after one second. A panic
// becomes part of the answer.
//
// An object that a cache does not have, although it is within the cache's namespaces, is read from
// the API server, without its content. Answers have names, versions and error texts, but no content
// of objects.
//
// For is for people and tests. It is safe for concurrent use, and does not disturb Reconciles.
package why
