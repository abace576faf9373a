// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package client talks to the API server: it loads a configuration, finds out how kinds are served,
// and has typed handles for writes and live reads.
//
// # Usage
//
//	cfg, err := client.LoadConfig("")
//	c, err := client.New(cfg, client.Options{Scheme: scheme, FieldOwner: "website-operator"})
//	deployments := client.For[*appsv1.Deployment](c)
//	_, err = deployments.Apply(ctx, desired)
//
// A [Handle] is a few words wide: make one where you need it, or keep it. Everything here is safe for
// concurrent use.
//
// Requests use client-go's REST client: protobuf for built-in kinds, JSON for custom ones, for
// unstructured objects and for metadata ([ForKind]). A handle asks the API server once how its kind is
// served. If the kind is not served, the next call asks again, because a CRD may have been installed.
// The API server answers 404 for such a kind, and for a missing subresource: see [NotServedError].
//
// # Writing
//
// A controller applies what it wants ([Handle.Apply]); [UnlessAlready] skips an apply that would change
// nothing. [Handle.Prune] deletes objects that are no longer wanted. [Handle.EnsureFinalizer] and
// [Handle.RemoveFinalizer] guard work that must precede a deletion. For conditions use apimachinery's
// meta.SetStatusCondition, for owner references cache.Handle.OwnerRef. [DryRun], [FieldOwner] and the
// other options are for single calls.
//
// # The transport
//
// A [Client] puts a transport into its configuration, innermost of all wrappers. It serves every
// client, of any library, that was built from [Client.Config], [Client.ConfigFor] or
// [Client.HTTPClient]:
//
//   - It enters requests in the ledger of their context, see package ledger.
//   - It lets requests pass the fence only while the term of leadership in their context is trusted,
//     see package term. [Options].Strict refuses writes without a term.
//   - It adds " controller/<name>" to the configured user agent if the ledger has a controller, as
//     [Client.ConfigFor] does. Controllers can share a client, and the audit log still distinguishes
//     them. A client with a user agent of its own keeps it.
//   - It follows a redirect only for a read (GET or HEAD) and only to the same scheme, host and
//     port. Any other is an error that names the request: it could disclose the bearer token or the
//     body of a write, or turn a POST into a GET.
//
// It changes nothing else in a request, and nothing in an answer.
package client
