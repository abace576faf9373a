// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/source"
)

// Warm keeps the controller current until ctx is done: its sources run and fill the queue, whether anybody takes from it or
// not. It joins the sources, shuts the queue down, and returns nil, or an error that names the source that could not start.
// A controller is warmed once.
func (c *Controller[K]) Warm(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer c.queue.ShutDown()
	var running sync.WaitGroup
	defer running.Wait()
	defer c.closeSources()

	hooks := c.sourceHooks(ctx)
	sources, err := c.openSources(func(s source.Source[K]) {
		running.Go(func() {
			if err := s.Run(ctx, c.queue, hooks); err != nil {
				stop(fmt.Errorf("controller %q: %w", c.name, err))
			}
		})
	})
	if err != nil {
		return err
	}
	if c.waitForSync(ctx, sources) {
		close(c.synced)
		<-ctx.Done()
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// openSources starts the sources, and from now on those that Watch adds.
func (c *Controller[K]) openSources(start func(source.Source[K])) ([]source.Source[K], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.warmed {
		return nil, fmt.Errorf("controller %q has run before; make a new one", c.name)
	}
	c.warmed, c.start = true, start
	for _, s := range c.sources {
		start(s)
	}
	return c.sources[:len(c.sources):len(c.sources)], nil
}

func (c *Controller[K]) closeSources() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start = nil
}

// waitForSync returns true when all sources and readables are synced, false when ctx ends before.
func (c *Controller[K]) waitForSync(ctx context.Context, sources []source.Source[K]) bool {
	for _, s := range sources {
		select {
		case <-s.Synced():
		case <-ctx.Done():
			return false
		}
	}
	c.mu.Lock()
	reads := c.reads
	c.mu.Unlock()
	for _, r := range reads {
		if r.WaitForSync(ctx) != nil {
			return false
		}
	}
	return true
}

// sourceHooks logs the failures of handlers where nobody observes them.
func (c *Controller[K]) sourceHooks(ctx context.Context) *hook.Source {
	if c.o.SourceHooks != nil {
		return c.o.SourceHooks
	}
	log := c.logger(ctx)
	return &hook.Source{HandlerFailed: func(source, object string, err error) {
		log.Error("a handler failed; the event is tried again", "source", source, "object", object, "err", err)
	}}
}
