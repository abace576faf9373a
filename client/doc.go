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
//     package term. With [Options].RequireTerm it also refuses writes without a term.
//   - appends " controller/<name>" to the configured user agent if the ledger names a controller.
//     Other user agents stay as they are.
//   - follows redirects only for reads (GET and HEAD) to the same scheme, host and port. Other
//     redirects are errors: they could disclose the bearer token or the body of a write, or turn a
//     POST into a GET.
//   - lets client-go repeat a request after a Retry-After of at most one second. Otherwise
//     client-go would sleep, ten times, in the goroutine of the caller. With a longer one, the
//     request fails at once: apierrors.SuggestsClientDelay has the seconds.
//
// It changes nothing else in requests, and nothing else in responses. In a response with a longer
// Retry-After, this header is a date until the body is read, and then a number of seconds.
//
// # Connections
//
// The clients of one configuration share their connections. They use its Dial, Proxy, TLS settings
// and credentials. If the rest.Config has a Transport, it is used as it is, and nothing of this
// applies.
//
//   - At most two dials are in progress at once, or as many as there are connections. The requests
//     that wait share the new HTTP/2 connection. So 300 concurrent writes need 4 to 6 connections
//     with 100 streams each, and not 300. Open connections do not count, so watches delay no
//     request. A dial that takes more than 300 ms does not count either. Over HTTP/1.1 there is no
//     bound, because each request needs a connection of its own.
//   - Requests for Leases have a connection of their own. A request that exceeds its deadline
//     closes it, so the next attempt dials. This covers client-go's elector, too.
//   - After a 401, the client reads the token file again (BearerTokenFile), and after a certificate
//     error the CA file (CAFile). If the file has changed, the client sends the request again,
//     once. Requests that fail together share one read. A token that was never in the file is the
//     caller's own and stays.
//   - [Client.Disconnect] closes all connections, also if the CA has changed since.
//
// HTTP/2 pings find a half-open connection, whose peer is gone without a word. Its requests and
// watches then fail, and are tried again over a new one:
//
//	connection    ping after silence of    closed without an answer within
//	of Leases     RenewDeadline / 4        RenewDeadline / 4
//	others        RenewDeadline / 2        RenewDeadline / 2
//
// The shortest RenewDeadline of the electors that package leaderelection makes or observes over
// these connections counts, else 10 s. Each limit is at least 500 ms and at most 15 s. By default,
// an informer is blind for at most 10 s. client-go's variables HTTP2_READ_IDLE_TIMEOUT_SECONDS and
// HTTP2_PING_TIMEOUT_SECONDS have no effect, but DISABLE_HTTP2 has.
//
// Stability: stable.
package client
