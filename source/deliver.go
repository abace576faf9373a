// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"runtime/debug"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// route is what becomes of events, before it is known which queue they go to.
type route[K comparable] struct {
	handler handler.Handler[K]
	filters []handler.Filter
	drops   *drops
	object  func(any) handler.Object // what an event is about, or nil if it is of another type
}

// delivery takes one source's events to the queue.
type delivery[K comparable] struct {
	*route[K]

	source  string
	queue   Queue[K]
	hooks   *hook.Source
	retries *retries
	calls   calls  // of the handler and the filters
	exited  func() // called when the handler or a filter has ended its goroutine

	identity handler.Identity[K] // of the handler, if the queue wants to see the events
	observer Observer[K]         // the queue, if identity is not nil
}

// newDelivery shows the events to the queue if both it and the handler want that.
func newDelivery[K comparable](r *route[K], source string, q Queue[K], h *hook.Source, exited func()) *delivery[K] {
	d := &delivery[K]{route: r, source: source, queue: q, hooks: h, exited: exited}
	identity, isIdentity := r.handler.(handler.Identity[K])
	observer, isObserver := q.(Observer[K])
	if isIdentity && isObserver {
		d.identity, d.observer = identity, observer
	}
	return d
}

// events is the informer's end.
func (d *delivery[K]) events(ctx context.Context) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if o := d.known(obj); o != nil {
				d.deliver(ctx, handler.Event{Op: handler.Create, New: o, Initial: initial})
			}
		},
		UpdateFunc: func(before, after any) {
			if o, n := d.known(before), d.known(after); o != nil && n != nil {
				d.deliver(ctx, handler.Event{Op: handler.Update, Old: o, New: n})
			}
		},
		DeleteFunc: func(obj any) {
			tombstone, stale := obj.(toolscache.DeletedFinalStateUnknown)
			if stale {
				obj = tombstone.Obj
			}
			if o := d.known(obj); o != nil {
				d.deliver(ctx, handler.Event{Op: handler.Delete, Old: o, Stale: stale})
			}
		},
	}
}

// deliver takes an event from the informer to the queue.
func (d *delivery[K]) deliver(ctx context.Context, e handler.Event) {
	if d.identity == nil || e.Old == e.New { // nobody looks, or it is a resync
		d.retries.deliver(ctx, e)
		return
	}
	after, err := d.observe(e)
	if err != nil {
		d.report(e.Key().String(), err)
	}
	d.retries.deliver(ctx, e)
	if after != nil {
		after()
	}
}

// observe shows an event to the queue. A panic of the handler is an error, and nothing is shown.
func (d *delivery[K]) observe(e handler.Event) (after func(), err error) {
	exited := true
	defer d.caught(&exited, &err)
	if key, ok := d.identity.Identity(e.Object()); ok {
		after = d.observer.Observe(key, e)
	}
	exited = false
	return after, nil
}

// caught is deferred around the host's code. A panic is an error with its stack (S8); the end of its goroutine ends the source.
func (d *delivery[K]) caught(exited *bool, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	} else if *exited { // it has neither returned nor panicked
		d.exited()
	}
}

// known returns what an event is about; nil if it is of the wrong type, which is counted.
func (d *delivery[K]) known(obj any) handler.Object {
	o := d.object(obj)
	if o == nil {
		d.drop(len(d.filters))
	}
	return o
}

func (d *delivery[K]) drop(reason int) {
	d.drops.add(reason)
	if d.hooks.Dropped != nil {
		d.hooks.Dropped(hook.SourceDropped{Source: d.source, Reason: d.drops.reasons[reason]})
	}
}

func (d *delivery[K]) report(object string, err error) {
	if d.hooks.HandlerFailed != nil {
		d.hooks.HandlerFailed(hook.SourceFailure{Source: d.source, Object: object, Err: err})
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
		d.retries.failed(err)
		d.report(e.Key().String(), err)
		return false
	}
	if len(keys) > 0 {
		d.queue.AddAll(keys, d.how(e))
	}
	return true
}

// keys asks the filters and the handler.
func (d *delivery[K]) keys(ctx context.Context, e handler.Event) (keys []K, err error) {
	exited := true
	d.calls.entered.Add(1)
	defer d.calls.left.Add(1)
	defer d.caught(&exited, &err)
	keys, err = d.ask(ctx, e)
	exited = false
	return keys, err
}

func (d *delivery[K]) ask(ctx context.Context, e handler.Event) ([]K, error) {
	for i, f := range d.filters {
		if !f.Keep(e) {
			d.drop(i)
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
