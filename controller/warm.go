// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
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

// queueHooks are Options.QueueHooks, which are told of the queue later: when there is something that will close it.
func (c *Controller[K]) queueHooks() *hook.Queue {
	if c.o.QueueHooks == nil || c.o.QueueHooks.Opened == nil {
		return c.o.QueueHooks
	}
	later := *c.o.QueueHooks
	later.Opened = func(e hook.QueueOpened) { c.opened = func() { c.o.QueueHooks.Opened(e) } }
	return &later
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
		c.o.Hooks.Started(hook.ControllerStarted{Controller: c.name, Of: c, Stats: c.stats})
	}
	defer func() {
		c.queue.ShutDown()
		c.letGo()
		if c.o.Hooks.Stopped != nil {
			c.o.Hooks.Stopped(hook.ControllerStopped{Controller: c.name, Of: c})
		}
	}()
	if !c.isWatching() {
		c.logger(ctx).Warn("the controller watches nothing, so no key becomes due unless the program adds it to the controller's Queue(); call Watch")
	}
	defer c.declared.Attach(cache.User{Relisted: c.relisted, Recovered: c.recovered, Reconciles: c.Reconciles})()
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	closeSources := c.runSources(run, stop)
	var overseen sync.WaitGroup
	if c.settleAll(run, &overseen, stop) {
		close(c.synced)
	}
	<-run.Done()
	closeSources()
	overseen.Wait()
	if cause := context.Cause(run); !errors.Is(cause, context.Cause(ctx)) {
		return cause
	}
	return nil
}

// settleAll returns true when all that the controller watches and reads is settled (S9), false when ctx ends before.
func (c *Controller[K]) settleAll(ctx context.Context, overseen *sync.WaitGroup, failed func(error)) bool {
	var settled []chan struct{}
	for _, r := range c.readables() {
		done := make(chan struct{})
		settled = append(settled, done)
		overseen.Go(func() {
			if err := c.oversee(ctx, r, done); err != nil {
				failed(err)
			}
		})
	}
	for _, done := range settled {
		select {
		case <-done:
		case <-ctx.Done():
			return false
		}
	}
	for w := c.unsettled(); w != nil; w = c.unsettled() {
		select {
		case <-w.settled:
		case <-w.ended:
		case <-w.removed:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

func (c *Controller[K]) isWatching() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.watches) > 0
}

func (c *Controller[K]) readables() []Readable {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}

// unsettled returns a source for which the workers have to wait, if there is one.
func (c *Controller[K]) unsettled() *watching[K] {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.watches {
		if !run.Closed(w.settled) && !run.Closed(w.ended) {
			return w
		}
	}
	return nil
}

// stateOf says where something stands that is watched or read.
func stateOf(what Readable) string {
	switch s := what.(type) {
	case interface{ State() source.State }:
		return s.State().String()
	case interface{ State() hook.InformerState }:
		return s.State().String()
	}
	if err := what.Stale(); err != nil {
		return err.Error()
	}
	if isSynced(context.Background(), what) {
		return "synced"
	}
	return "not synced"
}

// notStarted reports whether the informers of what is watched or read do not run: nothing will ever
// be in them unless that changes.
func notStarted(what Readable) bool {
	switch s := what.(type) {
	case interface{ State() source.State }:
		return s.State().Phase == hook.NotStarted
	case interface{ State() hook.InformerState }:
		return s.State().Phase == hook.NotStarted
	}
	return false
}

// patience is after how long the log says what the workers wait for; it says so again each minute.
const patience = 10 * time.Second

// oversee closes settled when workers need not wait for what the controller watches or reads. The log has what keeps them waiting
// for long, what they do not wait for because it is in trouble, and that it is well again. It returns when it is synced, when ctx
// ends, or with an error when it never can be.
func (c *Controller[K]) oversee(ctx context.Context, what Readable, settled chan<- struct{}) error {
	log := c.logger(ctx).With("source", what.String())
	for pause := patience; ; pause = time.Minute {
		limited, cancel := context.WithTimeout(ctx, pause)
		err := what.Settled(limited)
		late := limited.Err() != nil
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		if !late {
			return named(what, err)
		}
		switch {
		case !notStarted(what):
			log.Warn("the workers wait until a source is synced", "state", stateOf(what)) //nolint:contextcheck // it asks without waiting
		case c.told.first("not started", what.String()):
			log.Warn("the workers wait for a handle whose cache does not run; run that cache, or take the handle from the manager's Cache()")
		}
	}
	trouble := what.Stale()
	if trouble != nil {
		log.Warn("a source is not synced; the workers do not wait for it", "err", trouble)
	}
	close(settled)
	if trouble != nil && what.WaitForSync(ctx) == nil && what.Stale() == nil {
		log.Info("a source is synced now")
	}
	return nil
}
