// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/internal/storage"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// feed delivers the events of a handle to a queue.
type feed[K comparable] struct {
	base

	handler    handler.Handler[K]
	predicates []handler.Predicate
	object     func(any) handler.Object // as a T or a Record, or nil if it has another type
	example    handler.Object           // a nil T
	choosers   []chooser                // of predicates and handler
	retries    *retries
	calls      calls // of the handler and the predicates
	dropped    recentDrops

	// Set by run, before began is closed.
	to       Sink[K]
	exited   func()              // ends the source
	identity handler.Identity[K] // the handler, if it is one and to has an Observer
	events   subscription
	began    chan struct{}

	asked      chan request     // of Replay
	questioned chan question[K] // of Explain
	answering  atomic.Int64     // since when, in Unix ns, or 0
}

// chooser is a handler.InClass or a handler.After.
type chooser interface {
	Choose(e handler.Event, how *workqueue.AddOptions)
}

func newFeed[T handler.Object, K comparable](name string, h handler.Handler[K], predicates []handler.Predicate) *feed[K] {
	reasons := make([]string, len(predicates), len(predicates)+1)
	for i, f := range predicates {
		if f != nil { // validate reports nil
			reasons[i] = f.String()
		}
	}
	reasons = append(reasons, "not a "+reflect.TypeFor[T]().String())
	object := func(o any) handler.Object {
		if t, ok := o.(T); ok {
			return t
		}
		if r, ok := o.(storage.Record); ok {
			return r
		}
		return nil
	}
	f := &feed[K]{
		handler: h, predicates: predicates, object: object, example: *new(T),
		began: make(chan struct{}), asked: make(chan request), questioned: make(chan question[K]),
	}
	f.init(name, newDrops(reasons...), f)
	for _, predicate := range predicates {
		if c, ok := predicate.(chooser); ok {
			f.choosers = append(f.choosers, c)
		}
	}
	if c, ok := h.(chooser); ok {
		f.choosers = append(f.choosers, c)
	}
	f.retries = &retries{
		mu: &f.mu, tryOne: f.try, objects: newOrder[types.NamespacedName]("failed events"),
		pending: map[types.NamespacedName]pendingEvent{}, trying: map[types.NamespacedName]struct{}{},
	}
	return f
}

func (f *feed[K]) validate() error {
	var wrong []error
	check := func(part any) {
		if c, ok := part.(interface {
			CheckType(example handler.Object) error
		}); ok {
			if err := c.CheckType(f.example); err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w", f.name, err))
			}
		}
	}
	if argument.IsNil(f.handler) {
		wrong = append(wrong, fmt.Errorf("%s: the handler is a nil %T", f.name, f.handler))
	} else {
		check(f.handler)
	}
	for _, predicate := range f.predicates {
		if predicate == nil {
			wrong = append(wrong, fmt.Errorf("%s: a predicate is nil", f.name))
			continue
		}
		check(predicate)
	}
	return errors.Join(wrong...)
}

type subscription interface {
	// WaitForSync returns nil once the handler has seen every object of the initial list.
	WaitForSync(ctx context.Context) error
	// CatchUp returns nil once the handler has seen everything that the API server had at the call.
	CatchUp(ctx context.Context) error
	// Waiting returns the number of events that the handler has not been called with.
	Waiting() int
	// Close removes the handler. After it, no call is in progress or begins.
	Close()
}

// run subscribes and delivers until ctx is done. Once the source is synced, it calls meanwhile, if
// not nil, with a context that ends with the source.
func (f *feed[K]) run(ctx context.Context, to Sink[K],
	subscribe func(toolscache.ResourceEventHandler) (subscription, error), meanwhile func(context.Context),
) error {
	if err := f.begin(to.Observer); err != nil {
		return err
	}
	defer close(f.status.ended)
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	f.to, f.exited = to, func() { end(run.ErrExited) }
	if to.Observer != nil {
		f.identity, _ = f.handler.(handler.Identity[K])
	}
	events, err := subscribe(f.informed(ctx))
	if err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // a stop: the cache stopped before this source
		}
		return fmt.Errorf("%s: %w", f.name, err)
	}
	f.events = events
	close(f.began)
	var running sync.WaitGroup
	running.Go(func() { f.retries.run(ctx) })
	running.Go(func() { f.answer(ctx) })
	if to.Observer != nil {
		running.Go(func() { f.calls.watch(ctx, to.Observer) })
	}
	if err = events.WaitForSync(ctx); err == nil {
		f.status.SetSynced()
		if meanwhile != nil {
			running.Go(func() { meanwhile(ctx) })
		}
	}
	<-ctx.Done()
	events.Close()
	running.Wait()
	if errors.Is(context.Cause(ctx), run.ErrExited) {
		return fmt.Errorf("%s: a handler or predicate %w", f.name, run.ErrExited)
	}
	return nil
}

// CatchUp waits for what the API server had at the call, as cache.Handle.CatchUp does, and for
// failed events. A kind that is not served has nothing to handle. It returns an error at once if
// the source has stopped, or if the kind cannot be compared with the API server.
func (f *feed[K]) CatchUp(ctx context.Context) error {
	if run.Closed(f.status.ended) {
		return errStopped
	}
	select {
	case <-f.began:
	case <-f.status.ended:
		return errStopped
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotRunning, context.Cause(ctx))
	}
	return unless(ctx, f.status.ended, func(ctx context.Context) error {
		if err := f.events.CatchUp(ctx); err != nil {
			return err
		}
		return f.status.await(ctx, nil, f.retries.whenCalm())
	})
}

// unless calls f with a context that ends with the source. If f fails after that, the error is
// errStopped, even if f noticed the end of its informer first.
func unless(ctx context.Context, ended <-chan struct{}, f func(context.Context) error) error {
	ctx, stop := run.Until(ctx, ended, errStopped)
	defer stop()
	err := f(ctx)
	if err != nil && run.Closed(ended) {
		return errStopped
	}
	return err
}

func (f *feed[K]) informed(ctx context.Context) toolscache.ResourceEventHandler {
	added := func(obj any, initial, several bool) {
		if o := f.known(obj); o != nil {
			f.deliver(ctx, pendingEvent{Event: handler.Event{Op: handler.Create, New: o, Initial: initial}, several: several})
		}
	}
	updated := func(before, after any, several bool) {
		if o, n := f.known(before), f.known(after); o != nil && n != nil {
			f.deliver(ctx, pendingEvent{Event: handler.Event{Op: handler.Update, Old: o, New: n}, several: several})
		}
	}
	return eventHandler{
		toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc:    func(obj any, initial bool) { added(obj, initial, false) },
			UpdateFunc: func(before, after any) { updated(before, after, false) },
			DeleteFunc: func(obj any) {
				tombstone, stale := obj.(toolscache.DeletedFinalStateUnknown)
				if stale {
					obj = tombstone.Obj
				}
				if o := f.known(obj); o != nil {
					f.deliver(ctx, pendingEvent{Event: handler.Event{Op: handler.Delete, Old: o, Stale: stale}})
				}
			},
		},
		func(before, after any, initial bool) {
			if before == nil {
				added(after, initial, true)
			} else {
				updated(before, after, true)
			}
		},
	}
}

// known returns the object as a T. It counts other types as dropped and returns nil.
func (f *feed[K]) known(obj any) handler.Object {
	o := f.object(obj)
	if o == nil {
		f.drop(len(f.predicates))
	}
	return o
}

func (f *feed[K]) deliver(ctx context.Context, e pendingEvent) {
	if f.identity == nil || e.Old == e.New { // a resync, or no observer
		f.retries.deliver(ctx, e, nil)
		return
	}
	after, err := f.observe(e.Event)
	if err != nil {
		f.report(e.Key().String(), err)
	}
	f.retries.deliver(ctx, e, nil)
	if after != nil {
		after()
	}
}

func (f *feed[K]) observe(e handler.Event) (after func(), err error) {
	exited := true
	defer f.caught(&exited, &err)
	whole, readable := decoded(f.handler, e)
	if !readable {
		return nil, nil
	}
	if key, ok := f.identity.Identity(whole.Object()); ok {
		after = f.to.Observer.Observe(key, e)
	}
	exited = false
	return after, nil
}

// caught is deferred around the user's code. It returns a panic as an error. If the code ended its
// goroutine, the source ends.
func (f *feed[K]) caught(exited *bool, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	} else if *exited {
		f.exited()
	}
}

// try delivers an event, or returns an error if it must be retried. It drops the event when ctx is
// done.
func (f *feed[K]) try(ctx context.Context, e change) error {
	if ctx.Err() != nil {
		return nil
	}
	keys, how, err := f.keys(ctx, e.Event)
	if ctx.Err() != nil && err != nil {
		return nil
	}
	if err != nil {
		f.report(e.Key().String(), err)
		return err
	}
	if e.wanted != nil {
		keys = slices.DeleteFunc(slices.Clone(keys), func(key K) bool { return !e.wanted(key) })
	}
	if e.several { // its version is only the last one
		how.Reason.ResourceVersion = ""
	}
	if len(keys) > 0 {
		f.to.Queue.AddAll(keys, how)
	}
	return nil
}

func (f *feed[K]) keys(ctx context.Context, e handler.Event) (keys []K, how workqueue.AddOptions, err error) {
	exited := true
	f.calls.entered.Add(1)
	defer f.calls.left.Add(1)
	defer f.caught(&exited, &err)
	keys, err = f.ask(ctx, e)
	if err == nil && len(keys) > 0 {
		how = f.how(e)
		if len(f.choosers) > 0 {
			how = f.chosen(e, how)
		}
	}
	exited = false
	return keys, how, err
}

func (f *feed[K]) ask(ctx context.Context, e handler.Event) ([]K, error) {
	by, e := f.predicate(e)
	if by != keeps {
		f.drop(by)
		if e.Old != e.New { // no resync
			f.dropped.add(e, by)
		}
		return nil, nil
	}
	e, readable := decoded(f.handler, e)
	if !readable {
		return nil, nil
	}
	return f.handler.Keys(ctx, e)
}

const keeps = -1

// predicate returns the index of the first predicate that drops an event, or keeps, and the event
// as far as it was decoded.
func (f *feed[K]) predicate(e handler.Event) (by int, as handler.Event) {
	for i, predicate := range f.predicates {
		var readable bool
		if e, readable = decoded(predicate, e); !readable || !predicate.Keep(e) {
			return i, e
		}
	}
	return keeps, e
}

func (f *feed[K]) chosen(e handler.Event, how workqueue.AddOptions) workqueue.AddOptions {
	for _, c := range f.choosers {
		if whole, readable := decoded(c, e); readable {
			c.Choose(whole, &how)
		}
	}
	return how
}

func (f *feed[K]) how(e handler.Event) workqueue.AddOptions {
	o := e.Object()
	class := workqueue.Normal
	if e.Initial || (e.Op == handler.Update && e.Old.GetResourceVersion() == o.GetResourceVersion()) {
		class = workqueue.Background // the initial list, or a resync
	}
	return workqueue.AddOptions{Class: class, Reason: workqueue.Reason{
		Source: f.name, Event: string(e.Op), Object: e.Key().String(),
		UID: string(o.GetUID()), ResourceVersion: o.GetResourceVersion(),
	}}
}
