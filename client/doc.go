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
// # The transport
//
// A [Client] puts a transport into its configuration, innermost of all that wraps the connection.
// It serves every client that was built from [Client.Config], [Client.ConfigFor] or
// [Client.HTTPClient], whichever library it comes from:
//
//   - It enters requests in the ledger of their context, see package ledger.
//   - It lets requests pass the fence only while the term of leadership in their context is trusted,
//     see package term. [Options].Strict refuses writes without a term.
//   - It adds " controller/<name>" to the configured user agent of requests whose ledger has a
//     controller, as [Client.ConfigFor] does: handles and clients can be shared by controllers, and
//     the API server's audit log still tells them apart. A client with a user agent of its own keeps
//     it.
//   - It follows a redirect only for a read (GET or HEAD) and only to the same scheme, host and
//     port. Any other is an error that names the request: a redirect elsewhere would disclose the
//     bearer token, one of a write its body, or turn a POST into a GET.
//
// It changes nothing else in a request, and nothing in an answer.
package client
