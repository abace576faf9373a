// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/term"
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

// Run warms and leads at once, until ctx is done: for a controller without a manager. It leads under the term of leadership that ctx
// carries, if there is one (term.With, leaderelection.Observe); else the log and the snapshot say that there is none. Whoever runs the cache must keep it
// running until Run has returned. Running Reconciles may go on for Options.Grace after ctx is done, then their context is
// cancelled. Run returns when everything that it started has.
func (c *Controller[K]) Run(ctx context.Context) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := c.claim(); err != nil {
		return errors.Join(c.named(err)...)
	}
	warm, cool := context.WithCancel(context.WithoutCancel(ctx))
	defer cool()
	take, stop := context.WithCancel(ctx)
	defer stop()
	warmed := make(chan error, 1)
	go func() {
		err := c.warm(warm)
		stop()
		warmed <- err
	}()
	work, cancel := run.WithGrace(take, context.WithoutCancel(take), c.o.Grace)
	defer cancel()
	if term.Of(ctx) == nil {
		c.logger(ctx).Info("leading without a term of leadership: nothing keeps another process from acting at the same time")
	}
	err := c.Lead(take, work)
	cool()
	return errors.Join(c.named(errors.Join(err, <-warmed))...)
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
	if c.opened != nil {
		c.opened()
	}
	if c.o.Hooks.Started != nil {
		c.o.Hooks.Started(hook.ControllerStarted{Controller: c.name, Of: c, Stats: c.workers.stats})
	}
	defer func() {
		c.queue.ShutDown()
		c.consistency.letGo()
		if c.o.Hooks.Stopped != nil {
			c.o.Hooks.Stopped(hook.ControllerStopped{Controller: c.name, Of: c})
		}
	}()
	if watches, _ := c.inputs.all(); len(watches) == 0 {
		c.logger(ctx).Warn("the controller watches nothing, so no key becomes due unless the program adds it to the controller's Queue(); call Watch")
	}
	defer c.inputs.declared.Attach(cache.User{Relisted: c.consistency.relisted, Recovered: c.consistency.recovered, Reconciles: c.Reconciles})()
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w := &warming[K]{controller: c, log: c.logger(ctx), failed: stop}
	w.hooks = w.sourceHooks()
	end := c.inputs.run(func(s *watching[K]) { w.start(running, s) })
	if c.inputs.settled(running, func(r Readable, settled chan<- struct{}) { w.oversee(running, r, settled) }) {
		close(c.synced)
	}
	<-running.Done()
	end()
	w.running.Wait()
	if cause := context.Cause(running); !errors.Is(cause, context.Cause(ctx)) {
		return cause
	}
	return nil
}
