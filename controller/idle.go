// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
)

// CatchUp returns nil once everything that the API server had at the call, of what the controller watches or reads, has been
// handled by its sources, or shows in the local copy (see source.CatchingUp). If ctx ends before, the error names what is missing.
// A source, or something that is read, of a type that has no such method is only waited for until it is settled. It lists at the
// API server: it is for tests and scripts, as is [manager.Manager.Idle], which calls it.
//
// [manager.Manager.Idle]: https://pkg.go.dev/github.com/setpoint-dev/setpoint/manager#Manager.Idle
func (c *Controller[K]) CatchUp(ctx context.Context) error {
	return errors.Join(c.named(c.inputs.catchUp(ctx))...)
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
