// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// handler is a func as http.RoundTripper.
type handler func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f handler) RoundTrip(h *http.Request) (*http.Response, error) { return f(h) }

// RoundTrip answers one request by the rules. It implements http.RoundTripper. It fails after
// Close.
func (s *Server) RoundTrip(h *http.Request) (*http.Response, error) {
	resp, err := s.transport.RoundTrip(h)
	if errors.Is(err, fault.ErrStopped) {
		return nil, fmt.Errorf("sim: %s %s: the server is closed; stop its clients before the test ends: %w", h.Method, h.URL.Path, err)
	}
	return resp, err
}

// CloseIdleConnections does nothing: there are no connections. Clients call it when they end.
func (s *Server) CloseIdleConnections() {}

// Add activates a rule: it fails, delays, holds, changes or loses requests and answers, as in the
// proxy of package fault. Server.Config distinguishes the clients of fault.Match.Config.
func (s *Server) Add(r fault.Rule) *fault.Fault { return s.rules.Add(r) }

// Cut breaks the connections of matching running requests, such as watches, and returns their
// number. Clients see a reset connection.
func (s *Server) Cut(m fault.Match) int { return s.rules.Cut(m) }

// Close ends all running requests and watches, and returns when they have ended. Later requests
// fail. Calling it again is a no-op.
func (s *Server) Close() { s.rules.Stop() }
