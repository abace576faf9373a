// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-logr/logr"

	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/server"
)

// Handle mounts a handler on the server of Options.Server, before or during Run. The pattern is as
// for server.Server.Handle. Run returns a mistake as an error.
//
// The server stops last. When the grace time ends, the contexts of running requests end. If a
// handler still does not return, the error of Run has its stack.
func (m *Manager) Handle(pattern string, h http.Handler) {
	if m.servesMetrics(pattern) {
		m.report.failed(fmt.Errorf("Handle: Options.Metrics has the path of %q; use another one, or set Options.MetricsServer", pattern))
		return
	}
	err := m.server.Handle(pattern, h)
	if err == nil && m.o.Server == nil {
		err = fmt.Errorf("Handle: nothing serves %q; set Options.Server", pattern)
	}
	m.report.failed(err)
}

func (m *Manager) servesMetrics(pattern string) bool {
	_, path, found := strings.Cut(pattern, " ")
	if !found {
		path = pattern
	}
	return m.o.Metrics != nil && m.o.MetricsServer == nil && m.o.Server != nil && strings.TrimSpace(path) == metricsPath
}

// Authorize returns a handler that passes to h only requests that the API server allows: see
// server.Server.Authorize. Bind the manager's ServiceAccount to the ClusterRole
// system:auth-delegator. Run returns a mistake as an error.
func (m *Manager) Authorize(h http.Handler) http.Handler { return m.authorized(m.server, h) }

func (m *Manager) authorized(s *server.Server, h http.Handler) http.Handler {
	authorized, err := s.Authorize(h)
	if err != nil {
		m.report.failed(err)
		return http.NotFoundHandler()
	}
	// Another server may serve the handler, so the context needs the manager's logger.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorized.ServeHTTP(w, r.WithContext(logr.NewContextWithSlogLogger(r.Context(), m.report.logger())))
	})
}

// AddLivezCheck adds a check to /livez, before or during Run. If a check fails, the kubelet
// restarts the process: let it fail only where a restart helps. The name consists of letters,
// digits, '-', '_' and '.', and must not name a manager's check. Run returns a mistake as an error.
//
// The context of a check ends after 700 ms. A check fails if it panics or takes more than 800 ms.
// It is not called again before it returns. Without Options.Health it is never called.
func (m *Manager) AddLivezCheck(name string, check func(ctx context.Context) error) {
	m.report.failed(m.probes.add("AddLivezCheck", &m.probes.live, name, check))
}

// AddReadyzCheck adds a check to /readyz, with the rules of AddLivezCheck. While it fails, Services
// send no requests to the pod.
func (m *Manager) AddReadyzCheck(name string, check func(ctx context.Context) error) {
	m.report.failed(m.probes.add("AddReadyzCheck", &m.probes.ready, name, check))
}

// startServers opens all addresses before anything else starts. The grace time begins when stopping
// ends. Profiles end with the stage.
func (m *Manager) startServers(in *stage, alive, stopping context.Context) error {
	for i, s := range m.servers {
		if err := s.Open(alive); err != nil {
			for _, opened := range m.servers[:i] {
				_ = opened.Close() // no client is connected
			}
			return fmt.Errorf("the manager %q cannot run: manager.Options.%s: %w", m.o.Name, s.field, err)
		}
	}
	for _, s := range m.servers {
		in.run(s.String(), nil, func(ctx context.Context) error {
			if s.field == "PprofAddress" {
				return s.Serve(ctx, ctx)
			}
			work, cancel := run.WithGrace(stopping, context.WithoutCancel(ctx), m.o.Grace)
			defer cancel()
			return s.Serve(ctx, work)
		})
	}
	if w := m.webhooks(); w != nil {
		in.run("webhooks", nil, func(ctx context.Context) error { return w.Run(ctx, m.client, m.Recorder()) })
	}
	return nil
}

func (m *Manager) webhooks() Webhooks {
	if argument.IsNil(m.o.Webhooks) { // Validate has reported a nil pointer
		return nil
	}
	return m.o.Webhooks
}

type named struct {
	*server.Server

	field string
}

// makeServers ignores errors of options, which Validate has reported.
func (m *Manager) makeServers() {
	m.server, _ = server.New(server.Options{Client: m.client})
	for _, l := range m.o.listeners() {
		l.o.Client = m.client
		s, _ := server.New(l.o)
		m.servers = append(m.servers, named{s, l.field})
		switch l.field {
		case "Server":
			m.server = s
		case "PprofAddress":
			m.report.failed(s.Handle("/debug/pprof/", http.StripPrefix("/debug/pprof", debug.Profiles())))
		case "Webhooks":
			m.report.failed(s.Handle("/", m.o.Webhooks.Handler(m.o.Hooks.Webhook)))
		}
	}
	m.mountMetrics()
	m.probes = newProbes(m.webhooks(), m.roster, m.leases, m.clusters.states, m.serverOf("Server"), m.serverOf("MetricsServer"))
	if health := m.serverOf("Health"); health != nil {
		m.report.failed(m.probes.Mount(health))
	}
}

func (m *Manager) serverOf(field string) *server.Server {
	for _, s := range m.servers {
		if s.field == field {
			return s.Server
		}
	}
	return nil
}

const metricsPath = "/metrics"

func (m *Manager) mountMetrics() {
	o := cmp.Or(m.o.MetricsServer, m.o.Server)
	s := cmp.Or(m.serverOf("MetricsServer"), m.serverOf("Server"))
	if s == nil || m.o.Metrics == nil || argument.IsNil(m.o.Metrics) {
		return
	}
	h, err := m.o.Metrics.Handler()
	if err != nil {
		m.report.failed(fmt.Errorf("manager.Options.Metrics: %w", err))
		return
	}
	if !o.Plain {
		h = m.authorized(s, h)
	}
	m.report.failed(s.Handle(metricsPath, h))
}
