// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Annotations by which whoever may change an object controls how it is reconciled: the object that a key names, that is, which is
// watched with handler.Self or another handler.Identity. No filter hides them. (A cache.Transform that drops them does.)
// [Options].IgnoreAnnotations turns both off.
const (
	// PausedAnnotation on an object, with any value but "false", has its key not reconciled, as PauseKey does, until it is
	// removed or the object is gone. Mind that nobody removes finalizers meanwhile.
	PausedAnnotation = "setpoint.dev/paused"
	// RequeueAnnotation with a new value makes the key of an object due at once, as Requeue does. A time is a good value. One that
	// is there when the object is first seen does nothing.
	RequeueAnnotation = "setpoint.dev/requeue"
)

// observed is the queue as one source is given it: it sees the events of the objects that keys name.
type observed[K comparable] struct {
	*workqueue.Queue[K]

	pauses     *pauses[K]
	interrupts *interrupts[K]
	source     source.Source[K]
	ignore     bool // Options.IgnoreAnnotations
}

// Observe implements source.Observer. A pause begins before the event can make the key due; a pause ends, and a Reconcile is
// interrupted, after that, so that what follows is one Reconcile and not two.
func (o *observed[K]) Observe(key K, e handler.Event) (after func()) {
	by := pauser{o, e.Key()}
	heeded := !o.ignore
	paused := heeded && e.New != nil && isPaused(e.New)
	if paused {
		o.pauses.set(key, by, true)
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
			o.pauses.set(key, by, false)
		}
		if moved {
			o.interrupts.interrupt(key, e.New)
		}
	}
}

// paused describes a pause by the annotation of an object.
func (o *observed[K]) paused(object types.NamespacedName) string {
	return "annotation " + PausedAnnotation + " of " + object.String() + ", " + o.source.String()
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

// forget ends the pauses that objects of the source have asked for. It is called when nobody watches them any more.
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

// annotation returns an annotation without copying the others, as the method of an unstructured object does.
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
