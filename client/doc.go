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
// generated ones. It is the innermost of all that wraps the connection. Requests without a ledger pass at the cost of
// two lookups in their context; those with one cost about 2 µs, and 1 µs per KB of metadata in the answer to a write.
//
// The version of a written object is read from the answer while the caller reads it: JSON, protobuf or CBOR, also compressed.
// Nothing is read ahead, held back or changed, errors included; answers to reads, watches, logs and upgraded connections
// are not looked at. What the answer does not tell is left open, with the reason ([Write.Unknown]); see [Effect]. Where
// [Origin].Decode asks for it, the object itself is kept, too ([Write.Object]).
//
// One thing is changed in a request with a ledger that has a controller: if its user agent is the configured one, it is
// followed by " controller/<name>", as with [Client.ConfigFor], so that handles and clients can be shared by controllers and the
// API server's audit log still tells them apart. A client with a user agent of its own keeps it.
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
//     could not be made, and a request that the fence refused, are taken for not sent.
//   - Whether a patch or an apply has changed anything, unless it named the version, or repeats a write in the same ledger.
//   - That a delete or an eviction was a dry run, if its body cannot be read again (http.Request.GetBody); client-go's can.
//
// A ledger keeps the first 100 reads and 10000 writes, and counts the others. A controller closes
// the ledger when the Reconcile has returned ([Ledger.Close]): a write that begins then fails with
// a *[LateWriteError], and nothing is sent. Background work that outlives its Reconcile on purpose
// makes its requests with WithLedger(ctx, nil), which keeps the term of leadership.
//
// # Redirects
//
// A redirect is followed only for a read (GET or HEAD) and only to the same scheme, host and port. Any other is an error that
// names the request: a redirect elsewhere would hand out the bearer token, one of a write its body, or turn a POST into a GET.
// This holds for every client that the ledger sees, whatever context it is given.
//
// # The fence
//
// Whoever leads does so for a [Term], which says for how long that may be trusted: package leaderelection makes terms, and gives
// them to what leads in its contexts ([WithTerm], [TermOf]). The transport that keeps the ledger looks at them.
//
// L2: no request that carries a term passes the fence after its trust, reads included. The trust is over as soon as the monotonic
// or the wall clock says so, or [Term.End] was called. A request that waits for a connection, or in HTTP/2 for a stream, is
// cancelled then; when it has its connection, the clocks are looked at once more. What is on the wire is left alone. Refused
// requests give a *[FencedError], for which errors.Is finds [ErrFenced], and a ledger knows that they were not sent.
// Requests that may write and carry no term are counted ([hook.Client].Unfenced), and refused by a client that is
// [Options].Strict; [WithoutTerm] marks those that any replica may make. Dry runs and reviews of access are neither.
//
// Transports other than *http.Transport ([rest.Config].Transport) may not say when they have a connection: under them a request
// is cancelled wherever it is, and a write is then Uncertain.
//
// A term costs a request about 1 µs and 11 allocations; and a write with a ledger 0.1 µs more, 0.3 µs where each is of another object, for
// [Term.Written], which is what the next term has to know (L9).
//
// What no fence in the client can do: a request on the wire may arrive when somebody else leads, however late (a proxy may hold
// it back), and clocks that stood still together, as those of a virtual machine that was saved, say nothing. Preconditions close
// that: an update carries the resourceVersion that was read, and so should a patch or an apply (metadata.resourceVersion) and a
// delete (UID and resourceVersion); then a write that comes too late meets a conflict if the next leader has written.
// What narrows it where there is no version to name: [Token].Holder in an annotation of what is written, and a
// ValidatingAdmissionPolicy, with the Lease as its parameter, that compares it with the Lease's holder. It is as good as the API
// server's informer of the Lease is current. docs/leader-election.md has the policy, and what each of them is worth.
package client
