// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"errors"

	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/ledger"
)

// ErrFenced matches every [FencedError] with errors.Is.
var ErrFenced = errors.New("refused by the fence")

// ErrReturned is the cause of the end of a term, or a part, that is not lost: its work has
// returned. The elector gives it to [Term.End] before it releases the Lease. The error of
// [Term.Trusted] then wraps it.
var ErrReturned = fence.ErrReturned

// FencedError is the error of a request that was refused because another process may lead.
// errors.Is finds [ErrFenced] and the cause of [Term.End].
type FencedError struct {
	// Controller made the request. It is empty without a ledger.
	Controller string
	// Request is the refused request.
	Request ledger.Request
	// Uncertain reports that parts of the request may have been sent: it was refused between its
	// connection and the first byte. With a transport other than *http.Transport
	// (rest.Config.Transport), connections may be unknown. Then every request that was refused
	// after it reached the transport is uncertain.
	Uncertain bool
	// Err is the reason.
	Err error
}

// Error names the controller, the request and the reason.
func (e *FencedError) Error() string {
	s := ""
	if e.Controller != "" {
		s = "controller " + e.Controller + ": "
	}
	return s + "the request to " + e.Request.String() + " is " + ErrFenced.Error() + ": " + e.Err.Error()
}

// Unwrap returns ErrFenced and the reason.
func (e *FencedError) Unwrap() []error { return []error{ErrFenced, e.Err} }
