// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/source"
)

// Warm keeps the controller current until ctx is done: its sources run and fill the queue, whether anybody takes from it or
// not. It joins the sources, shuts the queue down, and returns nil, or an error that names the source that could not start, or
// what cannot be read. A controller is warmed once.
func (c *Controller[K]) Warm(ctx context.Context) error {
	if err := c.claim(); err != nil {
		return err
	}
	return c.warm(ctx)
}

// claim makes sure that the controller is warmed once.
func (c *Controller[K]) claim() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.warmed {
		return errors.New("it has run before; make a new one")
	}
	c.warmed = true
	return nil
}

func (c *Controller[K]) warm(ctx context.Context) error {
	defer c.queue.ShutDown()
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	hooks := c.sourceHooks(ctx)
	var running sync.WaitGroup
	sources := c.openSources(func(s source.Source[K]) {
		running.Go(func() {
			failure := named(s, errSourceExited) // unless runSource returns
			defer func() {
				if failure != nil {
					stop(failure)
				}
			}()
			failure = c.runSource(run, s, hooks)
		})
	})
	if err := c.waitForSync(run, sources); err != nil {
		stop(err) // or run is done already
	} else {
		close(c.synced)
	}
	<-run.Done()
	c.closeSources()
	running.Wait()
	if cause := context.Cause(run); !errors.Is(cause, context.Cause(ctx)) {
		return cause
	}
	return nil
}

// openSources starts the sources, and from now on those that Watch adds.
func (c *Controller[K]) openSources(start func(source.Source[K])) []source.Source[K] {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start = start
	for _, s := range c.sources {
		start(s)
	}
	return c.sources[:len(c.sources):len(c.sources)]
}

func (c *Controller[K]) closeSources() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start = nil
}

var errSourceExited = errors.New("the source ended its goroutine with runtime.Goexit; it should return an error instead")

// runSource runs a source. Its error names it. A panic is one, with its stack.
func (c *Controller[K]) runSource(ctx context.Context, s source.Source[K], hooks *hook.Source) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = named(s, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	err = s.Validate() // Watch may have come after the controller's Validate
	if err == nil {
		err = s.Run(ctx, c.queue, hooks)
	}
	if err == nil && ctx.Err() == nil {
		select {
		case <-s.Synced():
		default:
			err = errors.New("the source has ended before it was synced")
		}
	}
	return named(s, err)
}

// named makes err, if any, say whose it is, if it does not yet.
func named(whose fmt.Stringer, err error) error {
	if err == nil || strings.Contains(err.Error(), whose.String()) {
		return err
	}
	return fmt.Errorf("%s: %w", whose, err)
}

// patience is after how long the log says what the workers wait for; it says so again each minute.
const patience = 10 * time.Second

// waitForSync returns nil when all sources and readables are synced, an error when one cannot be or when ctx ends before.
func (c *Controller[K]) waitForSync(ctx context.Context, sources []source.Source[K]) error {
	for _, s := range sources {
		if err := c.wait(ctx, s, func(ctx context.Context) error { return synced(ctx, s) }); err != nil {
			return err
		}
	}
	c.mu.Lock()
	reads := c.reads
	c.mu.Unlock()
	for _, r := range reads {
		if err := c.wait(ctx, r, r.WaitForSync); err != nil {
			return named(r, err)
		}
	}
	return nil
}

// synced returns nil when the source is synced, and where it stands when ctx ends before.
func synced[K comparable](ctx context.Context, s source.Source[K]) error {
	select {
	case <-s.Synced():
		return nil
	case <-ctx.Done():
		return errors.New(s.State())
	}
}

// wait calls until, which returns nil when what the workers wait for is there, or an error when its context ends.
func (c *Controller[K]) wait(ctx context.Context, what fmt.Stringer, until func(context.Context) error) error {
	for pause := patience; ; pause = time.Minute {
		limited, cancel := context.WithTimeout(ctx, pause)
		err := until(limited)
		late := limited.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !late:
			return err
		}
		c.logger(ctx).Warn("the workers wait until it is synced", "source", what.String(), "state", err.Error())
	}
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
