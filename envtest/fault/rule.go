// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Rule says which requests, and what happens to them. Without effects it only counts. All rules that match a request
// apply, in the order in which they were added. No rule is wrong: negative numbers count as 0, and of Refuse, Cut and Hang
// the first that is set is what happens.
//
// The effects that concern the answer (CutAfter, Lag, Freeze) also apply to matching requests that are under way when
// the rule is added, the oldest first: to what arrives of their answers from then on.
type Rule struct {
	// Match says which requests. Default: every one.
	Match Match

	// Times is for how many requests the rule is good, the next ones that match. Default: 0, no limit.
	Times int

	// Hold keeps the request from the API server until Fault.Release or Fault.Remove. Default: false.
	Hold bool

	// Deliver has the request reach the API server although its client has gone by then, cut off, timed out or killed: what is
	// in a network already is not called back. Only Proxy.Down, Proxy.Stop and the end of the proxy's context call it back.
	// Default: false, a request ends when its client does.
	Deliver bool

	// Delay keeps the request from the API server for this long, after Hold. Default: 0.
	Delay time.Duration

	// Refuse answers the request instead of the API server, after Hold and Delay, with the status, reason and
	// Retry-After that the error carries. The constructors of k8s.io/apimachinery/pkg/api/errors make such errors:
	// NewTooManyRequests("slow down", 2). A status code that is no error's counts as 500. client-go itself repeats
	// requests that are answered with Retry-After. Default: nil.
	Refuse *apierrors.StatusError

	// Cut breaks the connection instead, as if the network had failed: a reset of the connection with HTTP/1.1, of the
	// stream with HTTP/2. Go's HTTP/1.1 client repeats a GET by itself when a connection that it has used before
	// breaks. Requests under way are the business of Proxy.Cut. Default: false.
	Cut bool

	// Hang neither answers the request nor passes it on, until the client gives up. Default: false.
	Hang bool

	// Lose breaks the connection when the API server has executed the request and answers. Default: false.
	Lose bool

	// CutAfter breaks the connection this long after the request arrived, or after the rule was added if that was
	// later, unless it has ended before. With it every watch lives at most so long. Default: 0, never.
	CutAfter time.Duration

	// Lag has each part of the answer, its header, every chunk and its end, arrive this much later than it would. It
	// is a delay line: the order stays, and so does the throughput. The lags of several rules add up. Default: 0.
	Lag time.Duration

	// Freeze withholds the answer, header and chunks, until Fault.Release or Fault.Remove; the API server is not told.
	// Together with Hold it is a connection on which nothing arrives any more. Default: false.
	Freeze bool
}

// answers reports whether the rule has effects on answers that are under way.
func (r Rule) answers() bool { return r.CutAfter > 0 || r.Lag > 0 || r.Freeze }
