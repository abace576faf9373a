// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Rule selects requests and their effects. Without effects it only counts. All matching rules
// apply, in the order in which they were added. Every rule is valid: negative numbers count as 0,
// and only the first of Refuse, Cut and Hang applies. An unknown verb or resource matches nothing,
// as Fault.Hits shows.
//
// CutAfter, Lag and Freeze affect the answer. They also apply to running requests, oldest first,
// for the rest of their answers.
type Rule struct {
	// Match selects the requests. Default: every request.
	Match Match

	// Times limits the rule to the next matching requests. Default: 0, no limit.
	Times int

	// Hold withholds the request from the API server until Fault.Release or Fault.Remove. Default:
	// false.
	Hold bool

	// Deliver sends the request to the API server even if its client is cut off or killed by then.
	// Only Proxy.Down, Proxy.Stop and the end of the proxy's context prevent that. Default: false,
	// a request ends with its client.
	Deliver bool

	// Delay withholds the request from the API server for this long, after Hold. Default: 0.
	Delay time.Duration

	// Refuse answers the request instead of the API server, after Hold and Delay, with the error's
	// status, reason and Retry-After: for example apierrors.NewTooManyRequests("slow down", 2). A
	// status code that is not an error counts as 500. client-go retries answers with Retry-After by
	// itself. Default: nil.
	Refuse *apierrors.StatusError

	// Cut breaks the connection instead of sending the request, like a network failure: it resets
	// the connection with HTTP/1.1, and the stream with HTTP/2. Go's HTTP/1.1 client retries a GET
	// when a reused connection breaks. For running requests use Proxy.Cut. Default: false.
	Cut bool

	// Hang neither answers nor forwards the request, until the client gives up. Default: false.
	Hang bool

	// Change is called instead of sending the request, after Hold and Delay, and returns the
	// answer. It may change request and answer, or answer without calling next. It is called
	// concurrently; if it blocks, it must end with the request's context. A new Body needs no
	// ContentLength. The first of several rules is the outermost. Default: nil.
	Change func(h *http.Request, next http.RoundTripper) (*http.Response, error)

	// Lose breaks the connection when the API server answers, after it has executed the request.
	// Default: false.
	Lose bool

	// CutAfter breaks the connection this long after the request or the rule arrived, whichever was
	// later. It limits the lifetime of watches. Default: 0, never.
	CutAfter time.Duration

	// Lag delays each part of the answer by this much: header, chunks and end. Order and throughput
	// stay the same. The lags of several rules add up. Default: 0.
	Lag time.Duration

	// Freeze withholds the answer, header and chunks, until Fault.Release or Fault.Remove. The API
	// server does not notice. With Hold it simulates a connection on which nothing arrives.
	// Default: false.
	Freeze bool
}

func (r Rule) answers() bool { return r.CutAfter > 0 || r.Lag > 0 || r.Freeze }
