// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// observer is the sink of one source: each event reaches the controller through it, first by
// Observe, and then by AddAll with the keys of its handler.
type observer[K comparable] struct {
	controller *Controller[K]
	source     source.Source[K]
	handle     any // the source's cache.Declared, or nil
	hook       *hook.Hook
}

// AddAll is the Queue of a source.Sink.
func (o *observer[K]) AddAll(keys []K, how workqueue.AddOptions) {
	if o.handle != nil {
		o.controller.consistency.expect(o.handle, keys, how, func(key K) bool { return o.controller.shards.accepts(key, false) })
	}
	o.controller.shards.AddAll(keys, how)
	o.controller.wakeHeld(keys)
}

// Observe implements source.Observer. A pause begins before the event makes the key due. A resume
// or an interruption comes after it, so that one Reconcile follows and not two.
func (o *observer[K]) Observe(key K, e handler.Event) (after func()) {
	heeded := !o.controller.o.IgnoreAnnotations
	paused := heeded && e.New != nil && isPaused(e.New)
	if paused {
		o.controller.setPause(key, o.pauser(e), true)
	}
	before := o.controller.records.look(key)
	if gone := e.New == nil; before.level != nil && before.gone != gone {
		o.controller.records.edit(key, func(r *record[K]) { r.gone = gone })
	}
	resumed := !paused && len(before.pausedBy) > 0
	deleted := e.New == nil && (resumed || before.level != nil)
	same := e.Old != nil && e.New != nil && e.Old.GetUID() == e.New.GetUID()
	if same && heeded {
		o.requeueIfAsked(key, e)
	}
	moved := same && o.controller.o.MaxInterrupts > 0 && e.Old.GetGeneration() != e.New.GetGeneration()
	if !resumed && !moved && !deleted {
		return nil
	}
	return func() {
		if moved { // first: a Reconcile that the resume starts has seen the change
			o.controller.interrupt(key, o.changed(e))
		}
		if resumed {
			o.controller.setPause(key, o.pauser(e), false)
		}
		if deleted {
			if resumed {
				o.controller.setPause(key, program, false)
				o.controller.endPauseOverHTTP(key)
			}
			o.controller.expireLevel(key)
		}
	}
}

// Dropped implements source.Observer.
func (o *observer[K]) Dropped(reason string) {
	if hook.Gets[*hook.SourceDropped](o.hook) {
		o.hook.Send(&hook.SourceDropped{Controller: o.controller.name, Source: o.source.String(), Reason: reason})
	}
}

// HandlerFailed implements source.Observer.
func (o *observer[K]) HandlerFailed(object string, err error) {
	o.hook.Send(&hook.HandlerFailed{Controller: o.controller.name, Source: o.source.String(), Object: object, Err: err})
}

// HandlerBlocked implements source.Observer.
func (o *observer[K]) HandlerBlocked(after time.Duration) {
	o.hook.Send(&hook.HandlerBlocked{Controller: o.controller.name, Source: o.source.String(), After: after})
}

// PollFailed implements source.Observer.
func (o *observer[K]) PollFailed(err error) {
	o.hook.Send(&hook.PollFailed{Controller: o.controller.name, Source: o.source.String(), Err: err})
}

func (o *observer[K]) changed(e handler.Event) changed {
	at := consistency.Write{Namespace: e.New.GetNamespace(), Name: e.New.GetName()}
	if of, ok := o.controller.inputs.informers.Event(o.handle, at); ok {
		return changed{event: e, host: of.Host, resource: of.Resource}
	}
	return changed{event: e}
}

func (o *observer[K]) pauser(e handler.Event) pauser {
	return pauser{o, "annotation " + PausedAnnotation + " of " + e.Key().String() + ", " + o.source.String()}
}

func (o *observer[K]) requeueIfAsked(key K, e handler.Event) {
	value, _ := annotation(e.New, RequeueAnnotation)
	if value == "" {
		return
	}
	if before, _ := annotation(e.Old, RequeueAnnotation); value != before && o.controller.shards.accepts(key, false) {
		o.controller.queue.RequeueNow(key, workqueue.Reason{
			Source: "annotation " + RequeueAnnotation, Event: "requeue", Object: e.Key().String(),
			UID: string(e.New.GetUID()), ResourceVersion: e.New.GetResourceVersion(),
		})
	}
}

func (o *observer[K]) forget() {
	for key, r := range o.controller.records.all() {
		for _, p := range r.pausedBy {
			if p.by == o {
				o.controller.setPause(key, p, false)
			}
		}
	}
}
