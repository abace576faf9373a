// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package ledger records the requests that are made with a context, and what their writes have done.
// A controller gives each Reconcile a [Ledger] and reads its own writes from it.
//
//	l := ledger.New(ledger.Origin{Controller: "website", Key: key, Run: run, Delivery: n})
//	err := reconcile(ledger.With(ctx, l))
//	for _, w := range l.Writes() { … } // which object, which version, and with which effect
//
// The transport of a client.Client fills it. It sees each request of each client that was built from
// that client's configuration and was given the context: the handles of package client, client-go's
// REST, clientset, dynamic, metadata and discovery clients, and generated ones. Requests without a
// ledger cost two lookups in their context; those with one about 2 µs, and 1 µs per KB of metadata
// in the answer to a write.
//
// The version of a written object is read from the answer while the caller reads it: JSON, protobuf
// or CBOR, also compressed. What the answer does not contain is left open, with the reason
// ([Write.Unknown]). Where [Origin].Decode asks for it, the object itself is kept ([Write.Object]).
//
// # What a ledger cannot know
//
//   - Requests that are made with another context, such as that of an event recorder, or by a client
//     that was not built from the configuration. client-go's fake clientsets have no transport:
//     with them a ledger stays empty.
//   - What a write does to other objects: garbage collection, defaulting, admission.
//   - The version that a write has made, where the answer does not contain it: an eviction, a
//     binding, a deletecollection, an empty or broken answer, or one that the caller has not read to
//     the end of the object's metadata. A delete, and an update that takes the last finalizer from a
//     deleting object, are recorded as Gone, but not always with the version: the answer to such an
//     update still carries the one before.
//   - Whether a write was carried out at all, if the answer is a 5xx or never came: it is Uncertain.
//     A connection that could not be made, and a request that the fence refused, were not sent.
//   - Whether a patch or an apply has changed anything, unless it named the version, or repeats a
//     write in the same ledger.
//   - That a delete or an eviction was a dry run, if its body cannot be read again
//     (http.Request.GetBody); client-go's can.
//
// # Limits
//
// A ledger keeps the first 100 reads and 10000 writes, and counts the others. A controller closes
// the ledger when the Reconcile has returned ([Ledger.Close]): a write that begins then fails with
// a *[LateWriteError], and nothing is sent. Background work that outlives its Reconcile on purpose
// makes its requests with [Without], which keeps the term of leadership.
package ledger
