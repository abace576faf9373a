// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package ledger records requests and the effects of their writes. A controller gives each
// Reconcile a [Ledger], and reads the Reconcile's own writes from it.
//
// The transport of a client.Client fills the ledger of the request's context, for every client
// built from that Client's configuration. It reads the version while the caller reads the answer:
// JSON or protobuf, also compressed. A request costs about 0.5 µs without a ledger and 2 µs with
// one. An answer to a write costs 1 µs more per KB of metadata (BenchmarkLedger in
// internal/transport).
//
// # What a ledger cannot know
//
//   - Requests with another context, such as an event recorder's, and requests of a client that was
//     not built from the configuration. client-go's fake clientsets have no transport.
//   - Effects on other objects: garbage collection, defaulting, admission.
//   - The version, if the answer lacks it: for an eviction, a binding, a deletecollection, or an
//     empty or broken answer, or if the caller stops reading in the metadata. An update that
//     removes the last finalizer returns the previous version.
//   - Whether a write was carried out, if it is [Uncertain]. Without a connection, or if the fence
//     refused the request, it was not sent.
//   - Whether an update, patch or apply without a resourceVersion was a no-op, unless it created
//     the object or repeats a write in the same ledger. Then [Write.Made] is false, and the version
//     may be another client's.
//   - That a delete or an eviction was a dry run, if http.Request.GetBody is nil. client-go sets
//     it.
//
// # Limits
//
// A ledger keeps the first 100 reads and 10000 writes, and counts the others. When the Reconcile
// has returned, the controller closes it. For background work that outlives its Reconcile, use
// [Without].
//
// Stability: settling.
package ledger
