// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package client talks to the API server: it loads a configuration, says where a kind is served, and gives typed write
// handles and live reads.
//
// # Usage
//
//	cfg, err := client.LoadConfig("")
//	c, err := client.New(cfg, client.Options{Scheme: scheme, FieldOwner: "website-operator"})
//	deployments := client.For[*appsv1.Deployment](c)
//	_, err = deployments.Apply(ctx, desired)
//
// A [Handle] is a few words wide: make one where it is needed, or keep it. Everything here may be used by any number of
// goroutines at once.
//
// Requests are made with client-go's own typed machinery (gentype): protobuf for built-in kinds, JSON for custom ones; those of
// [ForKind], for unstructured objects and for metadata, with its dynamic and metadata clients, and those of [SubresourceOf] with
// the dynamic one. A handle asks the API server once for the resource that its kind is served as; a kind that is not served
// yet is asked for again at the next call, so that a CRD may be installed later. A kind or a status that is not served is not
// mistaken for an object that is missing, although the API server's answer to both is 404: see [NotServedError].
//
// # Writing
//
// A controller applies what it wants ([Handle.Apply]), and what is so already is not sent ([UnlessAlready]). Objects that are no
// longer wanted are deleted by [Handle.Prune]; what has to be done before an object goes is ensured by [Handle.EnsureFinalizer]
// and [Handle.RemoveFinalizer]. Conditions are apimachinery's (meta.SetStatusCondition), owner references in the form that
// apply configurations want are made by cache.Handle.OwnerRef. [DryRun], [FieldOwner] and the other options are for single calls.
//
// # The ledger
//
// A [Client] puts a transport into its configuration that takes down the requests of a context:
//
//	l := client.NewLedger(client.Origin{Controller: "website", Key: key, Run: run, Delivery: n})
//	err := reconcile(client.WithLedger(ctx, l))
//	for _, w := range l.Writes() { … } // which object, which version, and what has become of it
//
// It sees every request of every client that was built from [Client.Config], [Client.ConfigFor] or [Client.HTTPClient] and
// was given the context: this package's handles, client-go's REST, clientset, dynamic, metadata and discovery clients,
// generated ones. It is the innermost of all that wraps the connection. Requests without a ledger pass at the cost of a
// lookup in their context; those with one cost about 2 µs, and 1 µs per KB of metadata in the answer to a write.
//
// The version of a written object is read from the answer while the caller reads it: JSON, protobuf or CBOR, also compressed.
// Nothing is read ahead, held back or changed, errors included; answers to reads, watches, logs and upgraded connections
// are not looked at. What the answer does not tell is left open, with the reason ([Write.Unknown]); see [Effect].
//
// What it cannot know:
//   - Requests that are made with another context, such as context.Background or that of an event recorder, or by a client that
//     was not built from the configuration. With client-go's fake clientsets, which have no transport, a ledger stays empty.
//   - What a write does to other objects: what is collected, defaulted or admitted in its wake.
//   - Which version a write has made, where the answer does not say: an eviction, a binding, a deletecollection, an empty or
//     broken answer, or one that the caller has not read to the end of the object's metadata. Of a delete, and of an update
//     that takes the last finalizer from a deleting object, that the object is Gone is told, but not always its version: the
//     answer to such an update still carries the one before.
//   - Whether a write was done at all, if the answer is a 5xx or never came: it is Uncertain. Only a connection that
//     could not be made is taken for a request that was not sent.
//   - Whether a patch or an apply has changed anything, unless it named the version, or repeats a write in the same ledger.
//   - That a delete or an eviction was a dry run, if its body cannot be read again (http.Request.GetBody); client-go's can.
//
// A ledger keeps the first 100 reads and 10000 writes, and counts the others.
package client
