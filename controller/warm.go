// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/term"
)

// Warm runs the sources, which fill the queue, until ctx is done. Then it joins them, shuts the
// queue down and returns nil. It returns an error if a source cannot start, or if the controller
// cannot read a declared handle. Call it once.
func (c *Controller[K]) Warm(ctx context.Context) error {
	if err := c.claim(); err != nil {
		return err
	}
	return c.warm(ctx)
}

// Lead runs the workers for one term: they take keys until take or work is done. Reconciles run on
// work, which should outlive take. Lead first waits for Synced and, if the previous term was
// released, for its writes. It returns nil when all workers have returned; a Reconcile that ignores
// the end of work delays that. While Warm runs, Lead may be called again for the next term, but not
// concurrently: that is an error.
func (c *Controller[K]) Lead(take, work context.Context) error {
	select {
	case <-c.started:
	case <-take.Done():
		return nil
	}
	if !c.consistency.awaitLeader(take, work) {
		return nil
	}
	t := &lead[K]{controller: c, log: c.logger(work).Handler(), over: &journal.Journal{}, fights: make(chan contested[K], mostFights)}
	t.origin = journal.Origin{Controller: c.name, Run: c.run, Owner: t}
	if leading := term.FromContext(work); leading != nil {
		t.origin.Term = leading.Token().String()
	}
	stale := func() error {
		return errors.Join(c.consistency.missingOf(&c.consistency.inherited.leader), c.inputs.stale())
	}
	return t.runWorkers(take, c.inputs.informers.Context(context.WithValue(work, staleKey{}, stale)))
}

// Run warms and leads until ctx is done, without a manager. It leads under the term of leadership
// in ctx (term.With, leaderelection.Observe). Without one, it logs that another process may act at
// the same time. Running Reconciles may continue for Options.Grace; then their context ends. Run
// returns when everything that it started has returned. Keep the cache running until then.
func (c *Controller[K]) Run(ctx context.Context) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := c.claim(); err != nil {
		return c.named(err)
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
	work, cancel := run.WithGrace(take, context.WithoutCancel(take), cmp.Or(c.o.Grace, 25*time.Second))
	defer cancel()
	if term.FromContext(ctx) == nil {
		c.logger(ctx).Info("leading without a term of leadership; another process may act at the same time")
	}
	err := c.Lead(take, work)
	cool()
	return c.named(errors.Join(err, <-warmed))
}

func (c *Controller[K]) claim() error {
	if c.warmed.Swap(true) {
		return errors.New("it has run before; make a new one")
	}
	c.past.open(c.name, cmp.Or(c.o.History, NewHistory(DefaultHistory)))
	return c.build()
}

func (c *Controller[K]) logInputs(ctx context.Context) {
	var sources, reads []string
	for _, i := range c.inputs.all() {
		if i.source != nil {
			sources = append(sources, i.String())
		} else {
			reads = append(reads, i.String())
		}
	}
	if sources == nil {
		c.logger(ctx).Warn("controller watches nothing; call Watch, or add keys to its Queue()")
		return
	}
	args := []any{"sources", strings.Join(sources, ", ")}
	if reads != nil {
		args = append(args, "reads", strings.Join(reads, ", "))
	}
	c.logger(ctx).Info("watching", args...)
}

func (c *Controller[K]) warm(ctx context.Context) error {
	c.shards.log.Store(c.logger(ctx))
	c.o.Hook.Send(&hook.ControllerStarted{Controller: c.name, Of: c, Stats: c.stats})
	defer func() {
		c.queue.ShutDown()
		c.consistency.letGo()
		c.past.close()
		close(c.stopped)
		c.o.Hook.Send(&hook.ControllerStopped{Controller: c.name, Of: c})
	}()
	c.logInputs(ctx)
	defer c.inputs.informers.Attach(&c.consistency)()
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w := &warming[K]{controller: c, log: c.logger(ctx), failed: stop}
	w.hook = w.sourceHook()
	end := c.inputs.run(func(i *input[K]) { w.start(running, i) })
	if c.inputs.awaitFirst(running, c.o.RequireKinds) {
		c.consistency.settled()
		close(c.started)
	}
	if c.inputs.awaitSettled(running) {
		close(c.synced)
		c.wakeEachHeld() // wakeAllHeld of the last input may have come too late
	}
	<-running.Done()
	end()
	w.running.Wait()
	if cause := context.Cause(running); !errors.Is(cause, context.Cause(ctx)) {
		return cause
	}
	return nil
}

type warming[K comparable] struct {
	controller *Controller[K]
	log        *slog.Logger
	hook       *hook.Hook
	failed     func(error)
	running    sync.WaitGroup
}

// start starts an input. The caller holds inputs.mu.
func (m *warming[K]) start(ctx context.Context, w *input[K]) {
	ctx, stop := context.WithCancel(ctx)
	w.stop = stop
	m.running.Go(func() {
		defer stop()
		if w.source == nil {
			m.settle(ctx, w)
		} else {
			m.watch(ctx, w)
		}
	})
}

func (m *warming[K]) watch(ctx context.Context, w *input[K]) {
	c := m.controller
	var overseen sync.WaitGroup
	q := &observer[K]{hook: m.hook, controller: c, handle: w.handle(), source: w.source}
	w.err = named(w.source, fmt.Errorf("the source %w", run.ErrExited)) // unless run returns
	source := w.source.String()
	m.hook.Send(&hook.SourceStarted{Controller: c.name, Source: source})
	defer func() {
		if run.Closed(w.removed) || ctx.Err() == nil {
			q.forget() // at the end of Warm, paused keys stay paused
		}
		if w.err != nil && !run.Closed(w.removed) {
			m.failed(w.err)
		}
		w.stop()
		overseen.Wait()
		m.hook.Send(&hook.SourceStopped{Controller: c.name, Source: source})
		close(w.ended)
		c.inputs.notify()
		c.wakeAllHeld()
	}()
	w.err = named(w.source, m.run(ctx, w, q, &overseen))
}

func (m *warming[K]) run(ctx context.Context, w *input[K], q *observer[K], overseen *sync.WaitGroup) (err error) {
	defer run.Recover(&err)
	if err := validate(w.source); err != nil { // Watch may follow Validate
		return err
	}
	overseen.Go(func() { m.settle(ctx, w) })
	err = w.source.Run(ctx, source.Sink[K]{Queue: q, Observer: q})
	if err == nil && ctx.Err() == nil && !isSynced(ctx, w) {
		return errors.New("the source has ended before it was synced")
	}
	return err
}

const patience = 10 * time.Second

// settle closes what.settled. If the input cannot be read, it ends Warm.
func (m *warming[K]) settle(ctx context.Context, what *input[K]) {
	log := m.log.With("source", what.String())
	for pause := patience; ; pause = time.Minute {
		limited, cancel := context.WithTimeout(ctx, pause)
		err := m.awaitEnough(limited, what)
		late := limited.Err() != nil
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		if !late {
			m.failed(named(what, err))
			return
		}
		phase, state := stateOf(what.Readable) //nolint:contextcheck // it asks without waiting
		switch {
		case phase != hook.NotStarted:
			waits := "workers wait for a source to sync"
			if run.Closed(m.controller.started) {
				waits = "keys of its cluster wait for a source to sync"
			}
			log.Warn(waits, "state", state)
		case m.controller.repetition.Once("not started", what.String()):
			log.Warn("workers wait for a handle whose cache does not run; run that cache, or take the handle from the manager's Cache()")
		}
	}
	trouble := what.Stale()
	if trouble != nil {
		log.Warn("source is not synced; workers start without it", "err", trouble)
	}
	close(what.settled)
	m.controller.inputs.notify()
	m.controller.wakeAllHeld()
	if trouble != nil && what.WaitForSync(ctx) == nil && what.Stale() == nil {
		log.Info("source is synced now")
	}
}

func (m *warming[K]) awaitEnough(ctx context.Context, what *input[K]) error {
	if !m.controller.o.RequireKinds || m.controller.inputs.isOptional(what) {
		return what.Settled(ctx)
	}
	if r, ok := what.what().(interface{ WaitForSome(context.Context) error }); ok {
		return r.WaitForSome(ctx)
	}
	return what.WaitForSync(ctx)
}

func (m *warming[K]) sourceHook() *hook.Hook {
	c, log := m.controller, m.log
	logged := hook.Join(
		hook.On(func(f *hook.HandlerFailed) {
			args, ok := c.repetition.Few("handler", f.Source, "source", f.Source, "object", f.Object, "err", f.Err)
			switch {
			case !ok:
			case errors.Is(f.Err, cache.ErrNotSynced): // such as an owner's kind after the start
				log.Info("the handler waits for another kind; the event will be retried", args...)
			default:
				log.Error("handler failed; the event will be retried", args...)
			}
		}),
		hook.On(func(b *hook.HandlerBlocked) {
			if c.repetition.Once("blocked", b.Source) {
				log.Warn("handler blocks its source, which delivers no events; do slow work in Reconcile",
					"source", b.Source, "after", b.After.String())
			}
		}),
		hook.On(func(f *hook.PollFailed) {
			log.Error("poll failed; it will be retried", "source", f.Source, "err", f.Err)
		}),
	)
	return hook.Join(logged, c.o.Hook)
}
