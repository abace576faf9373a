// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/source"
)

// watching is a source that the controller watches.
type watching[K comparable] struct {
	source  source.Source[K]
	settled chan struct{} // closed when workers need not wait for the source
	removed chan struct{} // closed by Unwatch
	ended   chan struct{} // closed when the source has returned, with err
	err     error
	stop    context.CancelFunc // ends the source; set when it starts, under the controller's mutex
}

// Watch adds a source, at any time until Warm ends. Workers start when the sources that were added before are settled. A source
// that is added later and cannot start ends Warm with its error, as those of the start do.
func (c *Controller[K]) Watch(s source.Source[K]) {
	if s == nil {
		c.complain(errors.New("Watch was given no source"))
		return
	}
	w := &watching[K]{source: s, settled: make(chan struct{}), removed: make(chan struct{}), ended: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches = append(slices.Clip(c.watches), w)
	c.declareLocked()
	if c.start != nil {
		c.start(w)
	}
}

// Unwatch stops a source that Watch was given, waits until it has returned, and forgets it: nothing of it is left, but keys that
// it made due stay so. It returns the source's error, if any, or one that says that it still runs when ctx ends before. It may be
// called at any time, also in a Reconcile, but not by a handler, a filter or a poll of the source itself, which it waits for.
func (c *Controller[K]) Unwatch(ctx context.Context, s source.Source[K]) error {
	w, running := c.forget(s)
	switch {
	case w == nil:
		return errors.Join(c.named(fmt.Errorf("%v is not watched", s))...)
	case !running:
		return nil
	}
	w.stop()
	select {
	case <-w.ended:
		return errors.Join(c.named(w.err)...)
	case <-ctx.Done():
		return errors.Join(c.named(fmt.Errorf("%s has not stopped yet: %w", s, context.Cause(ctx)))...)
	}
}

// Sources returns where each source that is watched stands, in the order of Watch. It is for people: counting takes time.
func (c *Controller[K]) Sources() []source.State {
	c.mu.Lock()
	watches := c.watches
	c.mu.Unlock()
	states := make([]source.State, 0, len(watches))
	for _, w := range watches {
		states = append(states, w.source.State())
	}
	return states
}

func (c *Controller[K]) forget(s source.Source[K]) (w *watching[K], running bool) {
	if s == nil || !reflect.TypeOf(s).Comparable() {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.watches, func(w *watching[K]) bool { return w.source == s })
	if i < 0 {
		return nil, false
	}
	w = c.watches[i]
	c.watches = slices.Delete(slices.Clone(c.watches), i, i+1)
	c.declareLocked()
	close(w.removed)
	return w, w.stop != nil
}

// runSources runs the sources, and those that Watch adds, until ctx is done. It calls failed if one cannot. close has Watch start
// none any more, and waits until all have returned.
func (c *Controller[K]) runSources(ctx context.Context, failed func(error)) (close func()) {
	var running sync.WaitGroup
	hooks := c.sourceHooks(ctx)
	start := func(w *watching[K]) {
		ctx, stop := context.WithCancel(ctx)
		w.stop = stop
		running.Go(func() { c.watch(ctx, w, hooks, failed) })
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start = start
	for _, w := range c.watches {
		start(w)
	}
	return func() {
		c.closeSources()
		running.Wait()
	}
}

func (c *Controller[K]) closeSources() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start = nil
}

// watch runs one source, and reports how it gets synced.
func (c *Controller[K]) watch(ctx context.Context, w *watching[K], hooks *hook.Source, failed func(error)) {
	var overseen sync.WaitGroup
	q := &observed[K]{Queue: c.queue, controller: c, source: w.source}
	w.err = named(w.source, fmt.Errorf("the source %w", run.ErrExited)) // unless runSource returns
	started := hook.SourceRun{Controller: c.name, Source: w.source.String()}
	if hooks.Started != nil {
		hooks.Started(started)
	}
	defer func() {
		if run.Closed(w.removed) || ctx.Err() == nil {
			q.forget() // not at the end of Warm, when nobody may take what was paused
		}
		if w.err != nil && !run.Closed(w.removed) {
			failed(w.err)
		}
		w.stop()
		overseen.Wait()
		if hooks.Stopped != nil {
			hooks.Stopped(started)
		}
		close(w.ended)
	}()
	if err := validate(w.source); err != nil { // Watch may have come after the controller's Validate
		w.err = err
		return
	}
	overseen.Go(func() {
		if err := c.oversee(ctx, w.source, w.settled); err != nil {
			failed(err)
		}
	})
	w.err = c.runSource(ctx, w.source, q, hooks)
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
func (c *Controller[K]) runSource(ctx context.Context, s source.Source[K], q source.Queue[K], hooks *hook.Source) (err error) {
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

// isSynced asks without waiting.
func isSynced(ctx context.Context, r Readable) bool {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return r.WaitForSync(ctx) == nil
}

// named makes err, if any, say whose it is, if it does not yet.
func named(whose fmt.Stringer, err error) error {
	if err == nil || strings.Contains(err.Error(), whose.String()) {
		return err
	}
	return fmt.Errorf("%s: %w", whose, err)
}

// sourceHooks logs the failures of sources' handlers and polls, and tells those who observe them. What fails for one object mostly
// does for all, such as those of an owner whose kind is not served, and again at each try: there are few lines.
func (c *Controller[K]) sourceHooks(ctx context.Context) *hook.Source {
	log := c.logger(ctx)
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
