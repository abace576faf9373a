// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Annotations of the object that a key names: one that is watched with handler.Self or another
// handler.Identity. No predicate hides them, but a cache.Transform can. [Options].IgnoreAnnotations
// turns both off.
const (
	// PausedAnnotation, with any value but "false", pauses the object's key as PauseKey does, until it
	// is removed or the object is gone. A paused object's finalizers wait, too.
	PausedAnnotation = "setpoint.dev/paused"
	// RequeueAnnotation with a new value makes the object's key due at once, as Requeue does. Use a
	// time as the value. The value at the first sight of an object does nothing.
	RequeueAnnotation = "setpoint.dev/requeue"
)

// pauses are the keys that are paused (C11).
type pauses[K comparable] struct {
	records *records[K]
	queue   *workqueue.Queue[K]
}

// set starts or ends one pause of a key, and tells the queue what follows.
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
		p.tell(key)
	}
}

// tell tells the queue whether a key is paused. The queue may call the user's code, so tell holds no
// lock meanwhile. It repeats until nothing has changed: the last call has the last state.
func (p *pauses[K]) tell(key K) {
	for {
		paused := p.has(key)
		if paused {
			p.queue.Pause(key)
		} else {
			p.queue.Resume(key)
		}
		if p.has(key) == paused {
			return
		}
	}
}

func (p *pauses[K]) has(key K) bool { return len(p.records.look(key).pausedBy) > 0 }

// observed is the queue for one source. It sees the events of the objects that keys name.
type observed[K comparable] struct {
	*workqueue.Queue[K]

	pauses     *pauses[K]
	interrupts *interrupts[K]
	source     source.Source[K]
	ignore     bool // Options.IgnoreAnnotations
}

// Observe implements source.Observer. A pause begins before the event makes the key due. It ends, or
// a Reconcile is interrupted, after that: one Reconcile follows, not two.
func (o *observed[K]) Observe(key K, e handler.Event) (after func()) {
	heeded := !o.ignore
	paused := heeded && e.New != nil && isPaused(e.New)
	if paused {
		o.pauses.set(key, o.pauser(e), true)
	}
	resumed := !paused && o.pauses.has(key)
	same := e.Old != nil && e.New != nil && e.Old.GetUID() == e.New.GetUID()
	if same && heeded {
		o.requeueIfAsked(key, e)
	}
	moved := same && o.interrupts.most > 0 && e.Old.GetGeneration() != e.New.GetGeneration()
	if !resumed && !moved {
		return nil
	}
	return func() {
		if resumed {
			o.pauses.set(key, o.pauser(e), false)
		}
		if moved {
			o.interrupts.interrupt(key, e.New)
		}
	}
}

func (o *observed[K]) pauser(e handler.Event) pauser {
	return pauser{o, "annotation " + PausedAnnotation + " of " + e.Key().String() + ", " + o.source.String()}
}

// requeueIfAsked makes a key due if the annotation for that has changed.
func (o *observed[K]) requeueIfAsked(key K, e handler.Event) {
	value, _ := annotation(e.New, RequeueAnnotation)
	if value == "" {
		return
	}
	if before, _ := annotation(e.Old, RequeueAnnotation); value != before {
		o.RequeueNow(key, workqueue.Reason{
			Source: "annotation " + RequeueAnnotation, Event: "requeue", Object: e.Key().String(),
			UID: string(e.New.GetUID()), ResourceVersion: e.New.GetResourceVersion(),
		})
	}
}

// forget ends the pauses by objects of a source that is no longer watched.
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

// annotation returns one annotation. The method of an unstructured object copies all.
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
