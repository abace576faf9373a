// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Annotations on the object that a key names, for sources with handler.Self or another
// handler.Identity. Predicates do not hide them, but a cache.Transform can.
// [Options].IgnoreAnnotations disables both.
const (
	// PausedAnnotation pauses the object's key, as PauseKey does, until the annotation is removed
	// or "false", or the object is gone. A paused object keeps its finalizers.
	PausedAnnotation = "setpoint.dev/paused"
	// RequeueAnnotation makes the object's key due at once, as Requeue does, when its value
	// changes. Use the current time as the value. In the first event of an object it has no effect.
	RequeueAnnotation = "setpoint.dev/requeue"
)

type pauses[K comparable] struct {
	records *records[K]
	queue   *currentQueue[K]
	all     atomic.Bool // see Controller.Pause
}

func (p *pauses[K]) updateAll() {
	p.queue.follow(p.all.Load, (*workqueue.Queue[K]).Pause, (*workqueue.Queue[K]).Resume)
}

func (p *pauses[K]) set(key K, by pauser, paused bool) {
	var before, after bool
	p.records.edit(key, func(r *record[K]) {
		before = len(r.pausedBy) > 0
		r.pausedBy = slices.DeleteFunc(slices.Clone(r.pausedBy), func(other pauser) bool { return other == by })
		if paused {
			r.pausedBy = append(r.pausedBy, by)
		}
		after = len(r.pausedBy) > 0
	})
	if before != after {
		p.update(key)
	}
}

func (p *pauses[K]) update(key K) {
	p.queue.follow(func() bool { return p.has(key) }, func(q *workqueue.Queue[K]) { q.PauseKey(key) }, func(q *workqueue.Queue[K]) { q.ResumeKey(key) })
}

// program is the pauser of PauseKey.
var program = pauser{text: "PauseKey"}

// expire ends the log level of a deleted object when nothing is left to reconcile.
func (p *pauses[K]) expire(key K) {
	if !p.records.look(key).gone {
		return
	}
	if _, known := p.queue.Load().Lookup(key); !known {
		p.records.edit(key, func(r *record[K]) {
			if r.gone { // else it was created again
				r.level, r.gone = nil, false
			}
		})
	}
}

func (p *pauses[K]) has(key K) bool { return len(p.records.look(key).pausedBy) > 0 }

type observed[K comparable] struct {
	source.Queue[K] // the controller's, for the keys that it serves

	pauses     *pauses[K]
	interrupts *interrupts[K]
	shards     *shards[K]
	controller *Controller[K]
	source     source.Source[K]
	handle     any // the source's cache.Declared, or nil
	ignore     bool
}

// AddAll implements source.Queue.
func (o *observed[K]) AddAll(keys []K, how workqueue.AddOptions) {
	if o.handle != nil {
		o.controller.consistency.expect(o.handle, keys, how, func(key K) bool { return o.shards.accepts(key, false) })
	}
	o.Queue.AddAll(keys, how)
	o.controller.wakeHeld(keys)
}

// Observe implements source.Observer. A pause begins before the event makes the key due. A resume
// or an interruption comes after it, so that one Reconcile follows and not two.
func (o *observed[K]) Observe(key K, e handler.Event) (after func()) {
	heeded := !o.ignore
	paused := heeded && e.New != nil && isPaused(e.New)
	if paused {
		o.pauses.set(key, o.pauser(e), true)
	}
	before := o.pauses.records.look(key)
	if gone := e.New == nil; before.level != nil && before.gone != gone {
		o.pauses.records.edit(key, func(r *record[K]) { r.gone = gone })
	}
	resumed := !paused && len(before.pausedBy) > 0
	deleted := e.New == nil && (resumed || before.level != nil)
	same := e.Old != nil && e.New != nil && e.Old.GetUID() == e.New.GetUID()
	if same && heeded {
		o.requeueIfAsked(key, e)
	}
	moved := same && o.interrupts.most > 0 && e.Old.GetGeneration() != e.New.GetGeneration()
	if !resumed && !moved && !deleted {
		return nil
	}
	return func() {
		if moved { // first: a Reconcile that the resume starts has seen the change
			o.interrupts.interrupt(key, o.changed(e))
		}
		if resumed {
			o.pauses.set(key, o.pauser(e), false)
		}
		if deleted {
			if resumed {
				o.pauses.set(key, program, false)
			}
			o.pauses.expire(key)
		}
	}
}

func (o *observed[K]) changed(e handler.Event) changed {
	at := consistency.Write{Namespace: e.New.GetNamespace(), Name: e.New.GetName()}
	if of, ok := o.controller.inputs.declared.Event(o.handle, at); ok {
		return changed{event: e, host: of.Host, resource: of.Resource}
	}
	return changed{event: e}
}

func (o *observed[K]) pauser(e handler.Event) pauser {
	return pauser{o, "annotation " + PausedAnnotation + " of " + e.Key().String() + ", " + o.source.String()}
}

func (o *observed[K]) requeueIfAsked(key K, e handler.Event) {
	value, _ := annotation(e.New, RequeueAnnotation)
	if value == "" {
		return
	}
	if before, _ := annotation(e.Old, RequeueAnnotation); value != before && o.shards.accepts(key, false) {
		o.controller.queue.RequeueNow(key, workqueue.Reason{
			Source: "annotation " + RequeueAnnotation, Event: "requeue", Object: e.Key().String(),
			UID: string(e.New.GetUID()), ResourceVersion: e.New.GetResourceVersion(),
		})
	}
}

func (o *observed[K]) forget() {
	for key, r := range o.pauses.records.all() {
		for _, p := range r.pausedBy {
			if p.by == o {
				o.pauses.set(key, p, false)
			}
		}
	}
}

func isPaused(o handler.Object) bool {
	value, ok := annotation(o, PausedAnnotation)
	return ok && value != "false"
}

// annotation avoids the copy that an unstructured object's GetAnnotations makes.
func annotation(o handler.Object, name string) (value string, ok bool) {
	u, isUnstructured := o.(*unstructured.Unstructured)
	if !isUnstructured {
		value, ok = o.GetAnnotations()[name]
		return value, ok
	}
	metadata, _ := u.Object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	value, ok = annotations[name].(string)
	return value, ok
}

var _ source.Observer[types.NamespacedName] = (*observed[types.NamespacedName])(nil)
