// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/bubble"
)

// RoundTrip answers one request by the rules. It implements http.RoundTripper. It fails after
// Close, and in a synctest bubble if the server was created outside of it.
func (s *Server) RoundTrip(h *http.Request) (*http.Response, error) {
	// A bubble's clock begins in 2000, so only then the slow bubble.Inside is needed.
	if time.Now().Before(s.born) && bubble.Inside() {
		return nil, fmt.Errorf("sim: %s %s: the server was created outside of the synctest bubble that uses it; call New in the bubble, with its t", h.Method, h.URL.Path)
	}
	resp, err := s.transport.RoundTrip(h)
	if errors.Is(err, fault.ErrStopped) {
		return nil, fmt.Errorf("sim: %s %s: the server is closed; stop its clients before the test ends: %w", h.Method, h.URL.Path, err)
	}
	return resp, err
}

// CloseIdleConnections does nothing, because the server has no connections. Transports have such a
// method, and client-go warns if it is missing.
func (s *Server) CloseIdleConnections() {}

// Add activates a rule: it fails, delays, holds, changes or loses requests and answers, as in the
// proxy of package fault. For a rule for some clients only, see Config.
func (s *Server) Add(r fault.Rule) *fault.Fault { return s.rules.Add(r) }

// Cut breaks the connections of matching running requests, such as watches, and returns their
// number. Clients see a reset connection.
func (s *Server) Cut(m fault.Match) int { return s.rules.Cut(m) }

// Close ends all running requests and watches, and returns when they have ended. Later requests
// fail. Calling it again is a no-op.
func (s *Server) Close() { s.rules.Stop() }
