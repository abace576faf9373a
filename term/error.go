// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"errors"

	"github.com/setpoint-dev/setpoint/ledger"
)

// ErrFenced is what every [FencedError] is.
var ErrFenced = errors.New("refused by the fence")

// FencedError is the error of a request that was refused because another process may lead.
// errors.Is finds [ErrFenced], and the cause with which the term was ended.
type FencedError struct {
	// Controller made the request, empty if it was made without a ledger.
	Controller string
	// Request is what was to be sent.
	Request ledger.Request
	// Uncertain reports that the request was refused between the connection and the first byte, so
	// that something may have been sent. Otherwise nothing was.
	Uncertain bool
	// Err is why the request was refused.
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

// Unwrap returns the reason.
func (e *FencedError) Unwrap() error { return e.Err }

// Is makes errors.Is find ErrFenced.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }
