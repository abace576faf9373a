// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// feed takes an informer's events to a queue. It is what Kind and Informer have in common.
type feed[K comparable] struct {
	route[K]

	ran     atomic.Bool
	synced  chan struct{}           // closed by run
	ended   chan struct{}           // closed by run
	began   chan struct{}           // closed by run, when events and retries are set
	events  subscription            // set by run
	retries atomic.Pointer[retries] // set by run
}

func newFeed[T handler.Object, K comparable](h handler.Handler[K], filters []handler.Filter) *feed[K] {
	reasons := make([]string, len(filters), len(filters)+1)
	for i, f := range filters {
		if f != nil { // validate refuses it
			reasons[i] = f.String()
		}
	}
	reasons = append(reasons, "not a "+reflect.TypeFor[T]().String())
	object := func(o any) handler.Object {
		if t, ok := o.(T); ok {
			return t
		}
		return nil
	}
	return &feed[K]{
		route:  route[K]{handler: h, filters: filters, drops: newDrops(reasons...), object: object},
		synced: make(chan struct{}), ended: make(chan struct{}), began: make(chan struct{}),
	}
}

// validate says what is wrong with the handler and the filters, for objects like example.
func (f *feed[K]) validate(name string, example handler.Object) error {
	var wrong []error
	check := func(part any) {
		if c, ok := part.(handler.TypeChecker); ok {
			if err := c.CheckType(example); err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
			}
		}
	}
	check(f.handler)
	for _, filter := range f.filters {
		if filter == nil {
			wrong = append(wrong, fmt.Errorf("%s: a filter is nil", name))
			continue
		}
		check(filter)
	}
	return errors.Join(wrong...)
}

// subscription is an event handler of an informer.
type subscription interface {
	// WaitForSync returns nil when the handler has seen every object of the initial list.
	WaitForSync(ctx context.Context) error
	// CatchUp returns nil once the handler has been told of everything that the API server had at the call.
	CatchUp(ctx context.Context) error
	// Close removes the handler. It is not called any more when Close has returned.
	Close()
}

// run subscribes, and delivers until ctx is done. meanwhile, if any, runs once the source is synced, until its context ends.
func (f *feed[K]) run(ctx context.Context, name string, q Queue[K], h *hook.Source,
	subscribe func(toolscache.ResourceEventHandler) (subscription, error), meanwhile func(context.Context, *delivery[K]),
) error {
	if f.ran.Swap(true) {
		return errRan(name)
	}
	defer close(f.ended)
	if h == nil {
		h = &hook.Source{}
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	d := newDelivery(&f.route, name, q, h, func() { end(run.ErrExited) })
	again, err := newRetries(name, d.try)
	if err != nil {
		return err
	}
	d.retries = again
	events, err := subscribe(d.events(ctx))
	if err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // everything stops, the cache has been faster
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	f.retries.Store(again)
	f.events = events
	close(f.began)
	var running sync.WaitGroup
	running.Go(func() { again.run(ctx) })
	running.Go(func() { d.calls.watch(ctx, name, h) })
	if err = events.WaitForSync(ctx); err == nil {
		close(f.synced)
		if meanwhile != nil {
			running.Go(func() { meanwhile(ctx, d) })
		}
	}
	<-ctx.Done()
	events.Close()
	running.Wait()
	if errors.Is(context.Cause(ctx), run.ErrExited) {
		return fmt.Errorf("%s: a handler or filter %w", name, run.ErrExited)
	}
	return nil
}

// stale says what keeps the feed from being synced.
func (f *feed[K]) stale() error {
	switch {
	case run.Closed(f.ended):
		return errStopped
	case run.Closed(f.synced):
		return nil
	case f.ran.Load():
		return errSyncing
	default:
		return errNotRunning
	}
}

// count puts down in s what is pending and what was dropped.
func (f *feed[K]) count(s State) State {
	if r := f.retries.Load(); r != nil {
		s.Retrying, s.Failure = r.state()
		s.Pending = s.Retrying
	}
	s.Dropped = f.drops.snapshot()
	return s
}
