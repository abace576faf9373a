// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"sync"
	"sync/atomic"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Kind delivers the changes of all objects of the handle's kind: first each object that there is, then each change. An
// event goes to the handler if every filter keeps it.
func Kind[T cache.Object, K comparable](objects *cache.Handle[T], h handler.Handler[K], filters ...handler.Filter) Source[K] {
	return &kind[T, K]{objects: objects, handler: h, filters: filters, synced: make(chan struct{})}
}

type kind[T cache.Object, K comparable] struct {
	objects *cache.Handle[T]
	handler handler.Handler[K]
	filters []handler.Filter
	synced  chan struct{} // closed by Run
	ran     atomic.Bool
	retries atomic.Pointer[retries[K]] // set by Run
}

func (k *kind[T, K]) Validate() error {
	if k.objects == nil || k.handler == nil {
		return errors.New("source.Kind: give a handle and a handler")
	}
	var example T
	errs := []error{}
	check := func(part any) {
		if c, ok := part.(handler.TypeChecker); ok {
			if err := c.CheckType(example); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", k, err))
			}
		}
	}
	check(k.handler)
	for _, f := range k.filters {
		if f == nil {
			errs = append(errs, fmt.Errorf("%s: a filter is nil", k))
			continue
		}
		check(f)
	}
	return errors.Join(errs...)
}

func (k *kind[T, K]) Synced() <-chan struct{} { return k.synced }

func (k *kind[T, K]) String() string {
	if k.objects == nil {
		return "Kind(" + reflect.TypeFor[T]().String() + ")"
	}
	return "Kind(" + k.objects.String() + ")"
}

func (k *kind[T, K]) State() string {
	state := k.objects.State().String()
	if r := k.retries.Load(); r != nil {
		if n := r.len(); n > 0 {
			state += fmt.Sprintf("; the handler has failed for %d objects, to be tried again", n)
		}
	}
	return state
}

func (k *kind[T, K]) Run(ctx context.Context, q Queue[K], h *hook.Source) error {
	if k.ran.Swap(true) {
		return fmt.Errorf("%s: the source has run before, or was given to two controllers; make one for each", k)
	}
	informer := k.objects.Informer()
	if informer == nil {
		return fmt.Errorf("%s: %w", k, k.objects.State().Err)
	}
	if h == nil {
		h = &hook.Source{}
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	d := &delivery[K]{source: k.String(), handler: k.handler, filters: k.filters, queue: q, hooks: h, exited: func() { end(errExited) }}
	again, err := newRetries(d)
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandlerWithOptions(d.events(ctx, again.add), toolscache.HandlerOptions{})
	if err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // everything stops, the cache has been faster
		}
		return fmt.Errorf("%s: %w", k, err)
	}
	k.retries.Store(again)
	var retrying sync.WaitGroup
	retrying.Go(func() { again.run(ctx) })
	select {
	case <-registration.HasSyncedChecker().Done():
		close(k.synced)
		<-ctx.Done()
	case <-ctx.Done():
	}
	err = toolscache.ShutDownEventHandler(informer, registration)
	retrying.Wait()
	if errors.Is(context.Cause(ctx), errExited) {
		return fmt.Errorf("%s: %w", k, errExited)
	}
	return err
}

// errExited ends a source: the goroutine that brings it its events is gone.
var errExited = errors.New("a handler or filter ended its goroutine, with runtime.Goexit or testing.T.FailNow; return an error instead")

// delivery takes one source's events to the queue.
type delivery[K comparable] struct {
	source  string
	handler handler.Handler[K]
	filters []handler.Filter
	queue   Queue[K]
	hooks   *hook.Source
	exited  func() // called when the handler or a filter has ended its goroutine
}

// events is the informer's end. What could not be delivered goes to failed.
func (d *delivery[K]) events(ctx context.Context, failed func(handler.Event)) toolscache.ResourceEventHandler {
	deliver := func(e handler.Event) {
		if !d.try(ctx, e) {
			failed(e)
		}
	}
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if o, ok := obj.(handler.Object); ok {
				deliver(handler.Event{Op: handler.Create, New: o, Initial: initial})
			}
		},
		UpdateFunc: func(before, after any) {
			o, ok1 := before.(handler.Object)
			n, ok2 := after.(handler.Object)
			switch {
			case !ok1 || !ok2: // not an API object: nothing to map
			case o.GetUID() != n.GetUID(): // S3
				deliver(handler.Event{Op: handler.Delete, Old: o, Stale: true})
				deliver(handler.Event{Op: handler.Create, New: n})
			default:
				deliver(handler.Event{Op: handler.Update, Old: o, New: n})
			}
		},
		DeleteFunc: func(obj any) {
			tombstone, stale := obj.(toolscache.DeletedFinalStateUnknown)
			if stale {
				obj = tombstone.Obj
			}
			if o, ok := obj.(handler.Object); ok {
				deliver(handler.Event{Op: handler.Delete, Old: o, Stale: stale})
			}
		},
	}
}

// try delivers an event, and reports whether that went well. Once ctx is done nobody needs it any more.
func (d *delivery[K]) try(ctx context.Context, e handler.Event) bool {
	if ctx.Err() != nil {
		return true
	}
	keys, err := d.keys(ctx, e)
	if err != nil && ctx.Err() != nil {
		return true
	}
	if err != nil {
		if d.hooks.HandlerFailed != nil {
			d.hooks.HandlerFailed(d.source, e.Key().String(), err)
		}
		return false
	}
	if len(keys) > 0 {
		d.queue.AddAll(keys, d.how(e))
	}
	return true
}

// keys asks the filters and the handler. A panic is an error with its stack (S8); the end of its goroutine ends the source.
func (d *delivery[K]) keys(ctx context.Context, e handler.Event) (keys []K, err error) {
	exited := true // unless ask returns, or panics
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		} else if exited {
			d.exited()
		}
	}()
	keys, err = d.ask(ctx, e)
	exited = false
	return keys, err
}

func (d *delivery[K]) ask(ctx context.Context, e handler.Event) ([]K, error) {
	for _, f := range d.filters {
		if !f.Keep(e) {
			if d.hooks.Dropped != nil {
				d.hooks.Dropped(d.source, f.String())
			}
			return nil, nil
		}
	}
	return d.handler.Keys(ctx, e)
}

// how says with which urgency and for what reason an event makes keys due.
func (d *delivery[K]) how(e handler.Event) workqueue.How {
	o := e.Object()
	class := workqueue.Normal
	if e.Initial || (e.Op == handler.Update && e.Old.GetResourceVersion() == o.GetResourceVersion()) {
		class = workqueue.Background // the initial list, or a resync
	}
	return workqueue.How{Class: class, Reason: workqueue.Reason{
		Source: d.source, Event: e.Op.String(), Object: e.Key().String(),
		UID: string(o.GetUID()), ResourceVersion: o.GetResourceVersion(),
	}}
}
