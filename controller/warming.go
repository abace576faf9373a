// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/source"
)

// warming runs what a controller watches, and looks after what it reads, during one call of Warm.
type warming[K comparable] struct {
	controller *Controller[K]
	log        *slog.Logger
	hooks      *hook.Source
	failed     func(error) // ends Warm
	running    sync.WaitGroup
}

// start runs a source until ctx is done. It is called under the mutex of inputs.
func (m *warming[K]) start(ctx context.Context, w *watching[K]) {
	ctx, stop := context.WithCancel(ctx)
	w.stop = stop
	m.running.Go(func() { m.watch(ctx, w) })
}

// oversee looks after what is read.
func (m *warming[K]) oversee(ctx context.Context, r Readable, settled chan<- struct{}) {
	m.running.Go(func() {
		if err := m.settle(ctx, r, settled); err != nil {
			m.failed(err)
		}
	})
}

// watch runs one source, and reports how it gets synced.
func (m *warming[K]) watch(ctx context.Context, w *watching[K]) {
	c := m.controller
	var overseen sync.WaitGroup
	q := &observed[K]{Queue: c.queue, pauses: &c.pauses, interrupts: &c.interrupts, source: w.source, ignore: c.o.IgnoreAnnotations}
	w.err = named(w.source, fmt.Errorf("the source %w", run.ErrExited)) // unless runSource returns
	started := hook.SourceRun{Controller: c.name, Source: w.source.String()}
	if m.hooks.Started != nil {
		m.hooks.Started(started)
	}
	defer func() {
		if run.Closed(w.removed) || ctx.Err() == nil {
			q.forget() // not at the end of Warm, when nobody may take what was paused
		}
		if w.err != nil && !run.Closed(w.removed) {
			m.failed(w.err)
		}
		w.stop()
		overseen.Wait()
		if m.hooks.Stopped != nil {
			m.hooks.Stopped(started)
		}
		close(w.ended)
	}()
	if err := validate(w.source); err != nil { // Watch may have come after the controller's Validate
		w.err = err
		return
	}
	overseen.Go(func() {
		if err := m.settle(ctx, w.source, w.settled); err != nil {
			m.failed(err)
		}
	})
	w.err = runSource(ctx, w.source, q, m.hooks)
}

// validate asks a source. Its error names it. A panic is one, with its stack.
func validate[K comparable](s source.Source[K]) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = named(s, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	return named(s, s.Validate())
}

// runSource runs a source. Its error names it. A panic is one, with its stack.
func runSource[K comparable](ctx context.Context, s source.Source[K], q source.Queue[K], hooks *hook.Source) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = named(s, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	err = s.Run(ctx, q, hooks)
	if err == nil && ctx.Err() == nil && !isSynced(ctx, s) {
		err = errors.New("the source has ended before it was synced")
	}
	return named(s, err)
}

// patience is after how long the log says what the workers wait for; it says so again each minute.
const patience = 10 * time.Second

// settle closes settled when workers need not wait for what the controller watches or reads. The log has what keeps them waiting
// for long, what they do not wait for because it is in trouble, and that it is well again. It returns when it is synced, when ctx
// ends, or with an error when it never can be.
func (m *warming[K]) settle(ctx context.Context, what Readable, settled chan<- struct{}) error {
	log := m.log.With("source", what.String())
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
		case m.controller.told.first("not started", what.String()):
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

// sourceHooks logs the failures of sources' handlers and polls, and tells those who observe them. What fails for one object mostly
// does for all, such as those of an owner whose kind is not served, and again at each try: there are few lines.
func (m *warming[K]) sourceHooks() *hook.Source {
	c, log := m.controller, m.log
	lines := newFewLines()
	logged := &hook.Source{
		HandlerFailed: func(f hook.SourceFailure) {
			if args, ok := lines.next("source", f.Source, "object", f.Object, "err", f.Err); ok {
				log.Error("a handler failed; the event is tried again", args...)
			}
		},
		HandlerBlocked: func(b hook.SourceBlocked) {
			if c.told.first("blocked", b.Source, b.Where) {
				log.Warn("a handler blocks, so the source delivers no events; return from it, and do slow work in Reconcile",
					"source", b.Source, "after", b.After.String(), "in", b.Where, "stack", b.Stack)
			}
		},
		PollFailed: func(f hook.SourceFailure) {
			log.Error("a poll failed; it is tried again", "source", f.Source, "err", f.Err)
		},
	}
	return logged.With(c.o.SourceHooks.For(c.name))
}
