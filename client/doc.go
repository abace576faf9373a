// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package client has typed handles that write objects to the API server and read them live, and
// loads the configuration. It has no cache: to read the objects that a controller watches, use
// package cache.
//
//	cfg, err := client.LoadConfig("")
//	c, err := client.New(cfg, client.Options{Scheme: scheme, FieldOwner: "website-operator"})
//	deployments := client.For[*appsv1.Deployment](c)
//	_, err = deployments.Apply(ctx, desired)
//
// A [Handle] is a few words wide: make one where you need it, or keep it. No constructor makes a
// request. Everything is safe for concurrent use.
//
// Requests go through client-go's REST client: in protobuf for built-in kinds, else in JSON. The
// client asks the API server once for the resource of a kind, or at each call if it is not served
// ([NotServedError]). Libraries that take client-go's interfaces get [Client.RESTMapper],
// [Client.Discovery], [Client.Dynamic] or [Client.Metadata].
//
// # Writing
//
//   - [Handle.Apply] is the usual write of a controller. [UnlessAlready] skips an apply that would
//     change nothing.
//   - [CreateOrUpdate] and [CreateOrPatch] read an object, change it with a function, and write it.
//   - [PatchFrom] sends the difference of two objects.
//   - [Handle.DeleteAll] deletes selected objects, [Handle.Prune] an owner's objects that are no
//     longer wanted.
//   - [Handle.EnsureFinalizer] and [Handle.RemoveFinalizer] guard work that must precede a
//     deletion.
//   - An [Option] such as [DryRun] changes a single call. [Options] has some for all calls.
//
// Code that takes a [ReadWriter] instead of a *[Handle] can be tested with a fake, and its requests
// can be wrapped. See also the packages status, finalizer and owner.
//
// # The transport
//
// Every client that is built from [Client.Config] or [Client.HTTPClient] uses the [Client]'s
// transport, innermost of all wrappers. It
//
//   - records requests in the ledger of their context, see package ledger.
//   - refuses a request whose context has a term of leadership that is no longer trusted, see
//     package term. With [Options].Strict it also refuses writes without a term.
//   - appends " controller/<name>" to the configured user agent if the ledger names a controller.
//     Other user agents stay as they are.
//   - follows redirects only for reads (GET and HEAD) to the same scheme, host and port. Other
//     redirects are errors: they could disclose the bearer token or the body of a write, or turn a
//     POST into a GET.
//
// It changes nothing else in requests, and nothing in responses.
package client
