// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"

	"github.com/setpoint-dev/setpoint/internal/run"
)

// Handle mounts a handler on the server of Options.Server, before Run or while it runs, as
// server.Server.Handle does. A mistake ends Run, or keeps it from starting.
//
// The server stops last. At a stop, the context of a request ends when the grace time is over. Run
// names a handler that does not return, with its stack.
func (m *Manager) Handle(pattern string, h http.Handler) {
	err := m.server.Handle(pattern, h)
	if err == nil && m.o.Server == nil {
		err = fmt.Errorf("Handle: nothing serves %q; set Options.Server", pattern)
	}
	m.report.failed(err)
}

// Authorize returns a handler that passes on to h only requests that the API server allows, as
// server.Server.Authorize does. The manager's ServiceAccount must be bound to the ClusterRole
// system:auth-delegator. A mistake ends Run, or keeps it from starting.
func (m *Manager) Authorize(h http.Handler) http.Handler {
	authorized, err := m.server.Authorize(h)
	if err != nil {
		m.report.failed(err)
		return http.NotFoundHandler()
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // also under another server
		authorized.ServeHTTP(w, r.WithContext(logr.NewContextWithSlogLogger(r.Context(), m.report.logger())))
	})
}

// AddLivezCheck adds a check to /livez, before Run or while it runs. A check that fails makes the
// kubelet restart the process, so it should fail only where a restart helps. The name consists of
// letters, digits, '-', '_' and '.', and is not one of the manager's.
//
// The context of a check ends after 700 ms, which is less than a probe's default timeout of a
// second. A check that panics or goes on longer has failed. It is not called again before it has
// returned. Without Options.Health it is never called.
func (m *Manager) AddLivezCheck(name string, check func(ctx context.Context) error) {
	m.report.failed(m.probes.add("AddLivezCheck", &m.probes.live, name, check))
}

// AddReadyzCheck adds a check to /readyz, as AddLivezCheck does to /livez. While it fails, Services
// send nothing to the pod.
func (m *Manager) AddReadyzCheck(name string, check func(ctx context.Context) error) {
	m.report.failed(m.probes.add("AddReadyzCheck", &m.probes.ready, name, check))
}

// startServers opens the addresses of Options.Health and Options.Server, before anything else is
// started, and serves there until the stage ends. The grace time begins when stopping ends.
func (m *Manager) startServers(in *stage, alive, stopping context.Context) error {
	for i, s := range m.servers {
		if err := s.Open(alive); err != nil {
			for _, opened := range m.servers[:i] {
				_ = opened.Close() // no client has connected
			}
			return fmt.Errorf("the manager %q cannot run: manager.Options.%s: %w", m.o.Name, s.field, err)
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
