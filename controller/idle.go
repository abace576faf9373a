// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/source"
)

// CatchUp returns nil once everything that the API server had at the call, of what the controller watches or reads, has been
// handled by its sources, or shows in the local copy (see source.CatchingUp). If ctx ends before, the error names what is missing.
// A source, or something that is read, of a type that has no such method is only waited for until it is settled. It lists at the
// API server: it is for tests and scripts, as is [manager.Manager.Idle], which calls it.
//
// [manager.Manager.Idle]: https://pkg.go.dev/github.com/setpoint-dev/setpoint/manager#Manager.Idle
func (c *Controller[K]) CatchUp(ctx context.Context) error {
	c.mu.Lock()
	watches, reads := c.watches, c.reads
	c.mu.Unlock()
	results := make(chan error, len(watches)+len(reads))
	var all sync.WaitGroup
	for _, w := range watches {
		all.Go(func() {
			err := catchUp(ctx, w.source)
			if run.Closed(w.removed) {
				err = nil
			}
			results <- named(w.source, err)
		})
	}
	for _, r := range reads {
		all.Go(func() { results <- named(r, catchUp(ctx, r)) })
	}
	all.Wait()
	close(results)
	var wrong []error
	for err := range results {
		wrong = append(wrong, err)
	}
	return errors.Join(c.named(errors.Join(wrong...))...)
}

func catchUp(ctx context.Context, r Readable) error {
	if s, ok := r.(source.CatchingUp); ok {
		return s.CatchUp(ctx)
	}
	return r.Settled(ctx)
}

// Quiet waits for a moment at which no key is ready, held or parked, as workqueue.Queue.Quiet says in full, and returns how many
// keys had been taken then. If ctx ends before, the error says what is in the way.
func (c *Controller[K]) Quiet(ctx context.Context) (taken uint64, err error) {
	taken, err = c.queue.Quiet(ctx)
	if err == nil {
		return taken, nil
	}
	if leading, _ := c.workers.leads(); !leading {
		err = fmt.Errorf("it does not lead, so that nobody takes its keys: %w", err)
	}
	return taken, fmt.Errorf("controller %q: %w", c.name, err)
}
