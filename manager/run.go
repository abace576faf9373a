// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
)

const (
	// hardLimit is how long after the grace time Run waits for what has not stopped.
	hardLimit = 3 * time.Second
	// warmLimit is how long a replica that does not get synced keeps from campaigning: a source that will never sync must
	// not keep everybody from leading.
	warmLimit = 2 * time.Minute
)

// Run starts everything, blocks until ctx is done or something fails, stops everything, and returns. It returns nil after a
// stop that was asked for, an error that names what failed, or, first of all, one that names all that is wrong with the
// wiring. It may be called once.
func (m *Manager) Run(ctx context.Context) error {
	if err := m.validate(); err != nil {
		return err
	}
	defer m.client.Close()
	ctx = logr.NewContextWithSlogLogger(ctx, m.o.Logger)
	// fail ends the run with the first error.
	stopping, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	caches, everywhere, leader := newStage(ctx, fail), newStage(ctx, fail), newStage(ctx, fail)
	caches.run("cache", m.cache.Run)
	for _, r := range m.everywhere {
		everywhere.run(r.name, r.run)
	}
	for _, c := range m.controllers {
		everywhere.run("controller "+c.Name(), c.Warm)
	}
	everywhere.run("ready", m.becomeReady)
	leader.run("leading", m.campaign)

	<-stopping.Done()
	err := m.stop(leader, everywhere, caches)
	if cause := context.Cause(stopping); ctx.Err() == nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	return err
}

// stop ends the stages one after another. All of them together have the grace time and the hard limit.
func (m *Manager) stop(stages ...*stage) error {
	deadline, cancel := context.WithTimeout(context.Background(), m.o.Grace+hardLimit)
	defer cancel()
	var errs []error
	for _, s := range stages {
		errs = append(errs, s.stop(deadline))
	}
	return errors.Join(errs...)
}

// becomeReady closes Ready when all controllers are synced.
func (m *Manager) becomeReady(ctx context.Context) error {
	for _, c := range m.controllers {
		select {
		case <-c.Synced():
		case <-ctx.Done():
			return nil
		}
	}
	m.o.Logger.Info("ready", "controllers", len(m.controllers))
	close(m.ready)
	return nil
}

// campaign leads when it may: at once, or, once this replica is warm, in the terms that it wins.
func (m *Manager) campaign(ctx context.Context) error {
	if m.elector == nil {
		return m.lead(ctx, context.WithoutCancel(ctx))
	}
	select {
	case <-m.ready:
	case <-ctx.Done():
		return nil
	case <-time.After(warmLimit):
		m.o.Logger.Warn("campaigning although not every controller is synced", "after", warmLimit)
	}
	return m.elector.Run(ctx, m.lead)
}

// lead runs for one term what only a leader may. It returns when all of it has; an error of one ends the others.
func (m *Manager) lead(take, work context.Context) error {
	take, fail := context.WithCancelCause(take)
	defer fail(nil)
	work, cancel := context.WithCancelCause(work)
	defer cancel(nil)
	overdue := context.AfterFunc(take, func() {
		time.AfterFunc(m.o.Grace, func() { cancel(fmt.Errorf("the grace time of %s is over: %w", m.o.Grace, context.Canceled)) })
	})
	defer overdue()

	term := newStage(take, fail)
	for _, c := range m.controllers {
		term.run("controller "+c.Name(), func(take context.Context) error { return c.Lead(take, work) })
	}
	for _, r := range m.leaderOnly {
		term.run(r.name, r.run)
	}
	<-take.Done()
	term.end()
	return term.join()
}
