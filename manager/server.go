// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"

	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// Server serves one address. *server.Server implements it.
type Server interface {
	// String returns the name and, once open, the address, for errors.
	fmt.Stringer
	// Validate returns the mistakes of the options and handlers. Run calls it.
	Validate() error
	// Open opens the address. Run calls it before anything else starts.
	Open(ctx context.Context) error
	// Serve answers until take is done. Requests in flight go on until work ends. Run calls it
	// after Open, once.
	Serve(take, work context.Context) error
	// Close closes a server that is open and will not serve.
	Close() error
}

// AddServer adds a server, before Run; the functions of package server call it. The server stops
// last: it still answers while controllers stop. When the grace time ends, the contexts of running
// requests end. If a handler still does not return, the error of Run has its stack.
func (m *Manager) AddServer(s Server) {
	m.registry.mu.Lock()
	ran := m.registry.ran
	if !ran && !argument.IsNil(s) {
		m.servers = append(m.servers, s)
	}
	m.registry.mu.Unlock()
	switch {
	case argument.IsNil(s):
		m.report.failed(errors.New("AddServer: the server is nil"))
	case ran:
		m.report.failed(fmt.Errorf("AddServer: the manager runs already; add %s before Run", s))
	}
}

// startServers opens all addresses before anything else starts. The grace time begins when stopping
// ends.
func (m *Manager) startServers(in *stage, alive, stopping context.Context) error {
	for i, s := range m.servers {
		if err := s.Open(alive); err != nil {
			for _, opened := range m.servers[:i] {
				_ = opened.Close() // no client is connected
			}
			return fmt.Errorf("the manager %q cannot run: %s: %w", m.o.Name, s, err)
		}
	}
	for _, s := range m.servers {
		in.run(s.String(), nil, func(ctx context.Context) error {
			work, cancel := run.WithGrace(stopping, context.WithoutCancel(ctx), m.o.Grace)
			defer cancel()
			return s.Serve(ctx, work)
		})
	}
	return nil
}

func (m *Manager) validateServers() (wrong []error) {
	for _, s := range m.servers {
		if err := s.Validate(); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", s, err))
		}
	}
	return wrong
}
