// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"runtime/debug"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// informed is the informer's end.
func (f *feed[K]) informed(ctx context.Context) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if o := f.known(obj); o != nil {
				f.deliver(ctx, handler.Event{Op: handler.Create, New: o, Initial: initial})
			}
		},
		UpdateFunc: func(before, after any) {
			if o, n := f.known(before), f.known(after); o != nil && n != nil {
				f.deliver(ctx, handler.Event{Op: handler.Update, Old: o, New: n})
			}
		},
		DeleteFunc: func(obj any) {
			tombstone, stale := obj.(toolscache.DeletedFinalStateUnknown)
			if stale {
				obj = tombstone.Obj
			}
			if o := f.known(obj); o != nil {
				f.deliver(ctx, handler.Event{Op: handler.Delete, Old: o, Stale: stale})
			}
		},
	}
}

// known returns what an event is about; nil if it is of the wrong type, which is counted.
func (f *feed[K]) known(obj any) handler.Object {
	o := f.object(obj)
	if o == nil {
		f.drop(len(f.filters))
	}
	return o
}

// deliver takes an event from the informer to the queue.
func (f *feed[K]) deliver(ctx context.Context, e handler.Event) {
	if f.identity == nil || e.Old == e.New { // it is a resync, or the queue does not look
		f.retries.deliver(ctx, e, nil)
		return
	}
	after, err := f.observe(e)
	if err != nil {
		f.report(e.Key().String(), err)
	}
	f.retries.deliver(ctx, e, nil)
	if after != nil {
		after()
	}
}

// observe shows an event to the queue. If the handler panics, it shows nothing.
func (f *feed[K]) observe(e handler.Event) (after func(), err error) {
	exited := true
	defer f.caught(&exited, &err)
	if key, ok := f.identity.Identity(e.Object()); ok {
		after = f.observer.Observe(key, e)
	}
	exited = false
	return after, nil
}

// caught is deferred around the user's code. A panic is an error with its stack (S8). If the code
// ended its goroutine, the source ends.
func (f *feed[K]) caught(exited *bool, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	} else if *exited {
		f.exited()
	}
}

// try delivers an event. An error means that it is to be tried again. When ctx is done, no queue
// needs the event.
func (f *feed[K]) try(ctx context.Context, e handler.Event) error {
	if ctx.Err() != nil {
		return nil
	}
	keys, err := f.keys(ctx, e)
	if ctx.Err() != nil && err != nil {
		return nil
	}
	if err != nil {
		f.report(e.Key().String(), err)
		return err
	}
	if len(keys) > 0 {
		f.queue.AddAll(keys, f.how(e))
	}
	return nil
}

// keys calls the filters and the handler.
func (f *feed[K]) keys(ctx context.Context, e handler.Event) (keys []K, err error) {
	exited := true
	f.calls.entered.Add(1)
	defer f.calls.left.Add(1)
	defer f.caught(&exited, &err)
	keys, err = f.ask(ctx, e)
	exited = false
	return keys, err
}

func (f *feed[K]) ask(ctx context.Context, e handler.Event) ([]K, error) {
	for i, filter := range f.filters {
		if !filter.Keep(e) {
			f.drop(i)
			return nil, nil
		}
	}
	return f.handler.Keys(ctx, e)
}

// how returns the class and the reason with which an event makes keys due.
func (f *feed[K]) how(e handler.Event) workqueue.How {
	o := e.Object()
	class := workqueue.Normal
	if e.Initial || (e.Op == handler.Update && e.Old.GetResourceVersion() == o.GetResourceVersion()) {
		class = workqueue.Background // the initial list, or a resync
	}
	return workqueue.How{Class: class, Reason: workqueue.Reason{
		Source: f.name, Event: e.Op.String(), Object: e.Key().String(),
		UID: string(o.GetUID()), ResourceVersion: o.GetResourceVersion(),
	}}
}
