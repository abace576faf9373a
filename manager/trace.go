// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/why"
)

// tracer is an optional interface of a controller.
type tracer interface {
	Trace(ctx context.Context, o why.Object, receive func(controller.Traced)) (watches bool, err error)
}

// Trace passes each Reconcile of an object's keys, in all controllers that watch its kind, to
// receive, until ctx ends: see controller.Controller.Trace. It calls receive for one at a time. If
// no controller can be traced, it returns their errors.
func (m *Manager) Trace(ctx context.Context, o why.Object, receive func(controller.Traced)) error {
	var wrong []error
	var tracing sync.WaitGroup
	var mu sync.Mutex // guards wrong
	all, over := make(chan controller.Traced), make(chan struct{})
	for _, c := range m.registry.current() {
		t, ok := c.Controller.(tracer)
		if !ok {
			continue
		}
		tracing.Go(func() {
			watches, err := t.Trace(ctx, o, func(r controller.Traced) {
				select {
				case all <- r:
				case <-ctx.Done():
				}
			})
			if !watches {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			wrong = append(wrong, err)
		})
	}
	go func() { // joined by the loop below
		tracing.Wait()
		close(over)
	}()
	for {
		select {
		case r := <-all:
			receive(r)
		case <-over:
			return m.untraced(o, wrong)
		}
	}
}

func (m *Manager) untraced(o why.Object, wrong []error) error {
	if len(wrong) == 0 {
		return fmt.Errorf("no controller of this process watches the kind %q", o.Kind)
	}
	if slices.Contains(wrong, nil) { // one was traced
		return nil
	}
	return errors.Join(wrong...)
}
