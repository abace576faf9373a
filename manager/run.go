// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/term"
)

// Run starts everything, blocks until ctx is done or something fails, and stops everything. It
// returns nil if it stopped because ctx ended, else an error that names what failed or still runs.
// If the wiring has mistakes, it starts nothing and returns all of them, one line each. A second
// call is an error.
func (m *Manager) Run(ctx context.Context) (err error) {
	stopping, end := context.WithCancel(ctx)
	defer end()
	if !m.report.begin(ctx, end) {
		return fmt.Errorf("the manager %q has run before; make a new one", m.o.Name)
	}
	defer func() {
		m.result = err
		close(m.ended)
	}()
	if err := m.validate(); err != nil {
		return err
	}
	began := time.Now()
	defer func() { m.logStopped(ctx, began, err) }()
	limit := began.Add(moment)
	defer func() { m.disconnect(limit) }() //nolint:contextcheck // ctx is done then
	ctx = logr.NewContextWithSlogLogger(ctx, m.report.logger())
	alive := context.WithoutCancel(ctx) // stages end one after another, not with ctx
	stage := func() *stage { return newStage(alive, m.report) }
	servers, events, caches, everywhere, leader := stage(), stage(), stage(), stage(), stage()
	if err := m.startServers(servers, alive, stopping); err != nil {
		return err
	}
	late, cancel := run.WithGrace(stopping, alive, m.o.Grace)
	defer cancel()
	recorders := m.registry.recorders
	recorders.open(func(r term.Recorder) {
		events.run("events", nil, func(ctx context.Context) error { return recorders.run(ctx, late, r, m.report) })
	})
	caches.run("cache", nil, m.cache.Run)
	m.clusters.open(func(c *Cluster) {
		caches.run(fmt.Sprintf("the cache of the cluster %q", c.name), nil, func(ctx context.Context) error { return c.running.run(ctx, ctx) })
	})
	m.registry.everywhere.open(func(f runnable) {
		everywhere.run(f.name, nil, func(ctx context.Context) error { return f.run(ctx, context.WithoutCancel(ctx)) })
	})
	everywhere.run("the version of the API server", nil, m.logStarted)
	everywhere.run("the review of rights", nil, m.preflight)
	everywhere.run("readiness", nil, m.becomeReady)
	m.leases.open(func(l *Lease) { leader.run(l.leads, nil, l.campaign) })

	<-stopping.Done()
	m.registry.stop()
	m.leases.close()
	m.clusters.close()
	recorders.close()
	m.logStopping(ctx)
	limit = time.Now().Add(m.o.Grace + hardLimit)
	stop(limit, leader, everywhere, caches, events, servers)
	m.report.settle(min(moment, time.Until(limit)))
	return m.report.result()
}

func (m *Manager) validate() error {
	m.registry.begin()
	known, _ := m.registry.names()
	wrong := append(m.report.errors(), m.cache.Validate(), m.clusters.validate(), validateNames(m.o.Controllers, known))
	for _, s := range m.servers {
		wrong = append(wrong, mistakesOf(s)...)
	}
	for _, r := range m.registry.recorders.current() {
		wrong = append(wrong, r.Validate())
	}
	for _, c := range m.registry.current() {
		wrong = append(wrong, c.Validate())
	}
	err := errors.Join(wrong...)
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "\n"):
		return fmt.Errorf("the manager %q cannot run:\n%w", m.o.Name, err)
	default:
		return fmt.Errorf("the manager %q cannot run: %w", m.o.Name, err)
	}
}

func stop(limit time.Time, stages ...*stage) {
	for i, s := range stages {
		later := len(stages) - 1 - i
		s.stop(limit.Add(-moment * time.Duration(later)))
	}
}

// disconnect waits a moment for requests that have just ended.
func (m *Manager) disconnect(limit time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), min(moment, time.Until(limit)))
	defer cancel()
	m.clusters.disconnect(ctx)
	m.leases.disconnect(ctx)
	m.client.Disconnect(ctx)
}

// WaitReady returns nil when every controller that was added before Run can lead: each source and
// handle is synced, or has a problem that the log names. If Run ends earlier, it returns Run's
// error. If ctx ends earlier, the error names what is not synced. Call it at any time, also before
// Run.
func (m *Manager) WaitReady(ctx context.Context) error {
	ready := m.registry.ready
	select {
	case <-ready:
	case <-m.ended:
	case <-ctx.Done():
	}
	switch {
	case run.Closed(ready):
		return nil
	case run.Closed(m.ended):
		return cmp.Or(m.result, fmt.Errorf("the manager %q has stopped before it was ready", m.o.Name))
	}
	var waits []string
	for _, c := range m.registry.current() {
		if !run.Closed(c.Synced()) {
			waits = append(waits, fmt.Sprintf("the controller %q waits for its sources: %s", c.Name(), strings.Join(c.Report().Unsynced, "; ")))
		}
	}
	why := errors.New(cmp.Or(strings.TrimSuffix(strings.Join(waits, "; "), ": "), "Run has not begun"))
	return fmt.Errorf("the manager %q is not ready: %w: %w", m.o.Name, why, context.Cause(ctx))
}

func (m *Manager) becomeReady(ctx context.Context) error {
	controllers := m.registry.current()
	if !allSynced(ctx, controllers) {
		return nil
	}
	log := m.report.logger()
	if _, disabled := m.registry.names(); disabled != nil {
		log = log.With("disabled", disabled)
	}
	log.Info("ready", "controllers", len(controllers))
	if _, anything := m.registry.hadAny(); !anything {
		log.Warn("the manager has no controllers and no functions; pass them to Add")
	}
	close(m.registry.ready)
	return nil
}
