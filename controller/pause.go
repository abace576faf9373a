// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/handler"
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

func (c *Controller[K]) updatePauses() {
	c.current.follow(c.pausedAll.Load, (*workqueue.Queue[K]).Pause, (*workqueue.Queue[K]).Resume)
}

func (c *Controller[K]) setPause(key K, by pauser, paused bool) {
	var before, after bool
	c.records.edit(key, func(r *record[K]) {
		before = len(r.pausedBy) > 0
		r.pausedBy = slices.DeleteFunc(slices.Clone(r.pausedBy), by.is)
		if paused {
			r.pausedBy = append(r.pausedBy, by)
		}
		after = len(r.pausedBy) > 0
	})
	if before != after {
		c.updatePause(key)
	}
}

func (c *Controller[K]) updatePause(key K) {
	isPaused := func() bool { return len(c.records.look(key).pausedBy) > 0 }
	c.current.follow(isPaused, func(q *workqueue.Queue[K]) { q.PauseKey(key) }, func(q *workqueue.Queue[K]) { q.ResumeKey(key) })
}

// program is the pauser of PauseKey.
var program = pauser{text: "PauseKey"}

// expireLevel ends the log level of a deleted object when nothing is left to reconcile.
func (c *Controller[K]) expireLevel(key K) {
	if !c.records.look(key).gone {
		return
	}
	if _, known := c.current.Load().Lookup(key); !known {
		c.records.edit(key, func(r *record[K]) {
			if r.gone { // else it was created again
				r.level, r.gone = nil, false
			}
		})
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
