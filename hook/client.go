// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// APIRequest describes a request to the API server.
type APIRequest struct {
	// Controller is the controller's name, or empty without a ledger in the context.
	Controller string
	// Verb is the API verb, such as get, list, create or deletecollection. For a path without a
	// resource it is the HTTP method in lower case.
	Verb                                  string
	Group, Version, Resource, Subresource string
	DryRun                                bool
	// Status is the HTTP status, or 0 without an answer.
	Status int
	// Took is the time until the answer began or the request failed.
	Took time.Duration
	// Err is why there is no answer, otherwise nil.
	Err error
	// UserAgent is set only for Unattributed.
	UserAgent string
	// Unknown is why the version or success of a write is unknown, or empty.
	Unknown string
}

// APIAnswer describes an HTTP request to the API server and its result.
type APIAnswer struct {
	// Host is the host and port of the API server.
	Method, Host string
	// Watch reports whether the answer is a stream that has only begun.
	Watch bool
	// Status is 0 without an answer; Err is the reason.
	Status int
	Err    error
	// Took is the time until the answer began or the request failed, without the wait for a
	// client-side rate limit.
	Took time.Duration
}

// Client observes package client.
type Client struct {
	// Opened is called by client.New with the host and port of the API server, and Closed by the
	// first Close of that client. Its requests may go on after that. A manager closes the clients
	// of its clusters, not its own.
	Opened, Closed func(host string)
	// Answered is called for each request, when the answer began or the request failed. A retry of
	// client-go counts as another request.
	Answered func(APIAnswer)
	// Requested is called for each request with a ledger in its context: when the answer began, for
	// a write when the answer was read, or when the request failed.
	Requested func(APIRequest)
	// Unfenced is called before each request that may write and has no term of leadership in its
	// context, except after term.Without. Err is set if the client requires a term and refuses the
	// request. Without leader election it is called for every request that may write.
	Unfenced func(APIRequest)
	// Unattributed is called before each request that may write and has no ledger in its context,
	// except after ledger.Without or term.Without.
	Unattributed func(APIRequest)
	// Skipped is called for each no-op server-side apply that was not sent.
	Skipped func(SkippedApply)
}

// SkippedApply describes a server-side apply that was not sent.
type SkippedApply struct {
	// Controller is the controller's name, or empty without a ledger in the context.
	Controller string
	// These are the parts of the path that was not requested.
	Group, Version, Resource, Subresource string
}
