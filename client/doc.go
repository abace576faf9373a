// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package client has typed handles that write objects to the API server and read them live. It also
// loads the configuration to reach the API server. It has no cache: to read the objects that a
// controller watches, use package cache.
//
//	cfg, err := client.LoadConfig("")
//	c, err := client.New(cfg, client.Options{Scheme: scheme, FieldOwner: "website-operator"})
//	deployments := client.For[*appsv1.Deployment](c)
//	_, err = deployments.Apply(ctx, desired)
//
// A [Handle] is a few words wide: make one where you need it, or keep it. Everything in this
// package is safe for concurrent use.
//
// [Handle.GetLive], [Handle.ListLive] and [Handle.WatchLive] read from the API server.
// [Client.RESTMapper], [Client.Discovery], [Client.Dynamic] and [Client.Metadata] are for libraries
// that take client-go's interfaces.
//
// Requests go through client-go's REST client: in protobuf for built-in kinds, in JSON for custom
// and unstructured objects and for metadata ([ForKind]). The client asks the API server once for
// the resource of a kind, or at each call if it is not served ([NotServedError]).
//
// # Writing
//
//   - [Handle.Apply] is the usual write of a controller. [UnlessAlready] skips an apply that would
//     change nothing. [NoForce] leaves the fields of other field owners alone.
//   - [CreateOrUpdate] and [CreateOrPatch] read an object, change it with a function, and write it.
//   - [PatchFrom] sends the difference of two objects, with or without [OptimisticLock].
//   - [Handle.DeleteAll] deletes selected objects, [Handle.Prune] those of an owner that are no
//     longer wanted.
//   - [Handle.EnsureFinalizer] and [Handle.RemoveFinalizer] guard work that must precede a
//     deletion.
//   - [DryRun], [FieldOwner], [FieldValidation] and other options change a single call. [Options]
//     has the first three for all calls.
//
// Code that takes a [ReadWriter] instead of a *[Handle] can be tested with a fake, and its requests
// can be wrapped.
//
// Package status computes conditions and refuses to write outdated ones. Package finalizer runs
// several steps before a deletion. Package owner sets owner references.
//
// # The transport
//
// A [Client] installs a transport in its configuration, innermost of all wrappers. Every client
// that is built from [Client.Config], [Client.ConfigFor] or [Client.HTTPClient] uses it. The
// transport
//
//   - records requests in the ledger of their context, see package ledger.
//   - refuses a request whose context has a term of leadership that is no longer trusted, see
//     package term. With [Options].Strict it also refuses writes without a term.
//   - appends " controller/<name>" to the configured user agent if the ledger names a controller,
//     so that the audit log distinguishes controllers that share a client. Other user agents stay
//     as they are.
//   - follows redirects only for reads (GET and HEAD) to the same scheme, host and port. Others are
//     errors, because they could disclose the bearer token or the body of a write, or turn a POST
//     into a GET.
//
// It changes nothing else in requests, and nothing in responses.
package client
