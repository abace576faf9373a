// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// APIRequest is a request to the API server that was made on behalf of a controller.
type APIRequest struct {
	// Controller is the controller's name.
	Controller string
	// Verb is that of the API server, such as get, list, create or deletecollection; for a path that names no resource the HTTP
	// method in lower case.
	Verb string
	// Group, Version, Resource and Subresource are those of the path.
	Group, Version, Resource, Subresource string
	// DryRun says that nothing was to be stored.
	DryRun bool
	// Status is the HTTP status of the answer, 0 if there was none.
	Status int
	// Took is how long it was until the answer began, or the error came.
	Took time.Duration
	// Err is why there was no answer.
	Err error
	// UserAgent is that of the request; only Unattributed is told.
	UserAgent string
	// Unknown is, for a write, why it cannot be told which version it has made, or whether it was done at all.
	Unknown string
}

// APIAnswer is an HTTP request to the API server, whoever made it, and how it went.
type APIAnswer struct {
	// Method is the HTTP method, Host the host and port of the API server.
	Method, Host string
	// Watch says that the answer is a stream, which has only begun.
	Watch bool
	// Status is the HTTP status of the answer, 0 if there was none; Err is then why.
	Status int
	Err    error
	// Took is how long it was until the answer began, or the error came. What a client-side rate limit costs is not in it.
	Took time.Duration
}

// Client is what package client reports.
type Client struct {
	// Answered is called for each request, those without a ledger included, when the answer began or the error came. A retry of
	// client-go's is one more.
	Answered func(APIAnswer)
	// Requested is called after each request with a ledger in its context: when the answer began and, for a write, was read.
	Requested func(APIRequest)
	// Unfenced is called before each request that may write and has no term of leadership in its context, unless that was on
	// purpose. Err is why it will be refused, if it will be. Without leader election that is every such request.
	Unfenced func(APIRequest)
	// Unattributed is called before each request that may write and whose context carries no
	// ledger, unless that was on purpose (ledger.Without, term.Without). It is
	// called by the goroutine that makes the request.
	Unattributed func(APIRequest)
	// Skipped is called for each server-side apply that was not sent because it would have changed nothing.
	Skipped func(SkippedApply)
}

// SkippedApply is an apply that was not sent.
type SkippedApply struct {
	// Controller is the controller's name; empty if the context has no ledger.
	Controller string
	// Group, Version, Resource and Subresource are those of the path that it would have gone to.
	Group, Version, Resource, Subresource string
}
