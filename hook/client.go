// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// APIRequest reports a request with a ledger in its context: when the answer began, for a write
// when the answer was read, or when the request failed.
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
	// Unknown is why the version or success of a write is unknown, or empty.
	Unknown string
}

// APIAnswer reports an HTTP request to the API server, when the answer began or the request failed.
// A retry of client-go counts as another request.
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

// ClientOpened reports a client that client.New has made. A manager closes the clients of its
// clusters, not its own.
type ClientOpened struct {
	// Host is the host and port of the API server.
	Host string
}

// ClientClosed reports the first Close of a client. Its requests may go on after that.
type ClientClosed struct{ Host string }

// Unfenced reports a request that may write and has no term of leadership in its context, before it
// is sent, except after term.Without. Err is set if the client requires a term and refuses the
// request. Without leader election there is an Unfenced for every request that may write.
type Unfenced struct{ APIRequest }

// SkippedApply reports a no-op server-side apply that was not sent.
type SkippedApply struct {
	// Controller is the controller's name, or empty without a ledger in the context.
	Controller string
	// These are the parts of the path that was not requested.
	Group, Version, Resource, Subresource string
}
