// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	// Failed is closed at the first mistake after Open, which Validate returns. Run then stops
	// everything. It is nil if there are none.
	Failed() <-chan struct{}
	// Close closes a server that is open and will not serve.
	Close() error
}

// AddServer adds a server, before Run; the functions of package server call it. The server stops
// last: it still answers while controllers stop. When the grace time ends, the contexts of running
// requests end. If a handler still does not return, the error of Run has its stack.
func (m *Manager) AddServer(s Server) {
	if argument.IsNil(s) {
		m.report.failed(errors.New("AddServer: the server is nil; server.Add makes one"))
		return
	}
	if m.registry.tooLate(s.String()) {
		return
	}
	m.registry.mu.Lock()
	ran, twice := m.registry.ran, slices.Contains(m.servers, s)
	if !ran && !twice {
		m.servers = append(m.servers, s)
	}
	m.registry.mu.Unlock()
	switch {
	case ran:
		m.report.failed(fmt.Errorf("AddServer: the manager runs already; add %s before Run", s))
	case twice:
		m.report.failed(fmt.Errorf("AddServer: %s was added before; server.Add adds it already", s))
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
		in.run("the handlers of "+s.String(), nil, func(ctx context.Context) error {
			select {
			case <-s.Failed():
				return errors.Join(mistakesOf(s)...)
			case <-ctx.Done():
				return nil
			}
		})
	}
	return nil
}

// mistakesOf returns one line for each mistake.
func mistakesOf(s Server) (wrong []error) {
	all := []error{s.Validate()}
	for len(all) > 0 {
		err := all[0]
		all = all[1:]
		if several, ok := err.(interface{ Unwrap() []error }); ok {
			all = append(several.Unwrap(), all...)
		} else if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", s, err))
		}
	}
	return wrong
}
