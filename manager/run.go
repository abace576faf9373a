// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"time"

	"github.com/go-logr/logr"
)

const (
	// hardLimit is how long after the grace time Run waits for what has not stopped.
	hardLimit = 3 * time.Second
	// moment is what each stage has at least, of the hard limit, however long those before it took to stop.
	moment = hardLimit / 12
)

// Run starts everything, blocks until ctx is done or something fails, stops everything, and returns. It returns nil after a
// stop that was asked for, an error that names what failed, or, first of all, one that names all that is wrong with the
// wiring, one line each. It may be called once.
func (m *Manager) Run(ctx context.Context) error {
	stopping, end := context.WithCancel(ctx)
	defer end()
	r := &report{manager: m.o.Name, end: end}
	if err := m.validate(ctx, r.failed); err != nil {
		return err
	}
	defer m.client.Close()
	ctx = logr.NewContextWithSlogLogger(ctx, m.logger())
	alive := context.WithoutCancel(ctx) // the stages end one after another, not all with ctx
	servers, caches, everywhere, leader := newStage(alive, r), newStage(alive, r), newStage(alive, r), newStage(alive, r)
	if err := m.startServers(servers, stopping); err != nil {
		return err
	}
	caches.run("cache", m.cache.Run)
	m.openEverywhere(func(f runnable) { everywhere.run(f.name, f.run) })
	everywhere.run("readiness", m.becomeReady)
	m.openLeases(func(l *Lease) {
		leader.run(l.leads(), func(ctx context.Context) error { return l.campaign(ctx, r) })
	})

	<-stopping.Done()
	m.close()
	m.tellStopping(ctx, r)
	limit := time.Now().Add(m.o.Grace + hardLimit)
	m.stop(limit, leader, everywhere, caches, servers)
	r.settle(min(moment, time.Until(limit)))
	return r.result()
}

// tellStopping logs why everything is to stop. Run says it, too, but perhaps half a minute later.
func (m *Manager) tellStopping(ctx context.Context, r *report) {
	if err := r.first(); err != nil {
		m.logger().Error("stopping, because something has failed", "err", err, "grace", m.o.Grace.String())
		return
	}
	m.logger().Info("stopping", "cause", context.Cause(ctx), "grace", m.o.Grace.String())
}

// close has nothing be started from now on.
func (m *Manager) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopping = true
}

// stop ends the stages one after another. All of them together have the time until the limit.
func (m *Manager) stop(limit time.Time, stages ...*stage) {
	for i, s := range stages {
		later := len(stages) - 1 - i
		s.stop(limit.Add(-moment * time.Duration(later)))
	}
}

// becomeReady closes Ready when all controllers could lead that were there at the start, and are still.
func (m *Manager) becomeReady(ctx context.Context) error {
	m.mu.Lock()
	controllers := m.controllers[:len(m.controllers):len(m.controllers)]
	m.mu.Unlock()
	if !allSynced(ctx, controllers) {
		return nil
	}
	log := m.logger()
	if disabled := m.disabledNames(); disabled != nil {
		log = log.With("disabled", disabled)
	}
	log.Info("ready", "controllers", len(controllers))
	close(m.ready)
	return nil
}
