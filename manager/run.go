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
	// warmLimit is how long a replica that does not get synced keeps from campaigning: a source that will never sync must
	// not keep everybody from leading.
	warmLimit = 2 * time.Minute
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
	caches, everywhere, leader := newStage(alive, r), newStage(alive, r), newStage(alive, r)
	caches.run("cache", m.cache.Run)
	m.openEverywhere(func(f runnable) { everywhere.run(f.name, f.run) })
	everywhere.run("readiness", m.becomeReady)
	leader.run("leading", func(ctx context.Context) error { return m.campaign(ctx, r) })

	<-stopping.Done()
	m.stop(leader, everywhere, caches)
	return r.result()
}

// stop ends the stages one after another. All of them together have the grace time and the hard limit.
func (m *Manager) stop(stages ...*stage) {
	limit := time.Now().Add(m.o.Grace + hardLimit)
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
	for _, c := range controllers {
		select {
		case <-c.Synced():
		case <-c.removed:
		case <-ctx.Done():
			return nil
		}
	}
	m.logger().Info("ready", "controllers", len(controllers))
	close(m.ready)
	return nil
}

// campaign leads when it may: at once, or, once this replica is warm, in the terms that it wins.
func (m *Manager) campaign(ctx context.Context, r *report) error {
	lead := func(take, work context.Context) error { return m.lead(take, work, r) }
	if m.elector == nil {
		return lead(ctx, context.WithoutCancel(ctx))
	}
	select {
	case <-m.ready:
	case <-ctx.Done():
		return nil
	case <-time.After(warmLimit):
		m.logger().Warn("campaigning although not every controller is synced", "after", warmLimit)
	}
	return m.elector.Run(ctx, lead)
}

// lead runs for one term what only a leader may. It returns when all of it has. Errors are reported at once, so that what
// runs outside of the term stops, too.
func (m *Manager) lead(take, work context.Context, r *report) error {
	work, cancel := withGrace(take, work, m.o.Grace)
	defer cancel()
	term := newStage(take, r)
	defer term.end()
	m.openTerm(func(l leading) {
		term.run(l.name, func(take context.Context) error { return l.run(take, work) })
	})
	<-take.Done()
	term.join()
	return nil
}
