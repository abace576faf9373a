// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// Await returns a copy of the object when it meets all goals. It reads status.conditions of any
// kind that has them, such as Deployments and Pods. A condition counts only if it is current:
// its observedGeneration and status.observedGeneration, if present, are the object's generation.
//
// Await first lets the cache catch up ([cache.Handle.CatchUp]), so it sees every change before the
// call. This lists the metadata of all objects in the handle's scope: for a single object of a
// large kind, use a handle with Names. Then Await waits for events, without polling. The cache must
// run.
//
// If the object does not exist, Await waits until it is created; if it is deleted during the wait,
// Await returns an IsNotFound error at once. If ctx ends first, the error describes the conditions
// and wraps the cause of ctx; without an object, it is also IsNotFound.
//
// Do not use Await in a Reconcile, which it would block: return, and the event of the change makes
// the key due.
func Await[T cache.Object](ctx context.Context, h *cache.Handle[T], key types.NamespacedName, goals ...Goal) (T, error) {
	w := &watcher{key: key, newest: make(chan sighting, 1)}
	fail := func(err error) (T, error) {
		return *new(T), fmt.Errorf("await %s of %s %s: %w", join(goals), h, object.Name(key), err)
	}
	if len(goals) == 0 {
		return *new(T), fmt.Errorf("await %s %s: no goals are given; name one, such as status.True(status.Ready)", h, object.Name(key))
	}
	events, err := h.Subscribe(w)
	if err != nil {
		return fail(err)
	}
	defer events.Close()
	if err := events.CatchUp(ctx); err != nil {
		return fail(err)
	}
	// The events have shown the object. A read has the reason why they may never show one.
	if _, err := h.Get(ctx, key); err != nil && !apierrors.IsNotFound(err) {
		return fail(err)
	}
	var now sighting
	select {
	case now = <-w.newest:
		now.deleted = false // before the call
	default:
	}
	for {
		missing := describe(now.obj, goals)
		switch {
		case now.deleted:
			return fail(fmt.Errorf("it was deleted: %w", notFound(h, key)))
		case missing == "":
			if t, ok := now.obj.DeepCopyObject().(T); ok {
				return t, nil
			}
			return fail(fmt.Errorf("the informer has a %T", now.obj))
		}
		select {
		case now = <-w.newest:
		case <-ctx.Done():
			if now.obj == nil {
				return fail(fmt.Errorf("%w: %w", notFound(h, key), context.Cause(ctx)))
			}
			return fail(fmt.Errorf("%s: %w", missing, context.Cause(ctx)))
		}
	}
}

func join(goals []Goal) string {
	names := make([]string, len(goals))
	for i, g := range goals {
		names[i] = g.text()
	}
	return strings.Join(names, ", ")
}

func notFound[T cache.Object](h *cache.Handle[T], key types.NamespacedName) error {
	resource, _ := meta.UnsafeGuessKindToResource(h.GroupVersionKind()) // for the message
	return apierrors.NewNotFound(resource.GroupResource(), key.Name)
}

// watcher is an event handler that keeps the newest state of one object.
type watcher struct {
	key    types.NamespacedName
	newest chan sighting // has an element after a change, until Await takes it
}

type sighting struct {
	obj     cache.Object // nil if it does not exist
	deleted bool         // since the last one, even if it was created again
}

func (w *watcher) OnAdd(obj any, _ bool) { w.set(obj, false) }

func (w *watcher) OnUpdate(_, obj any) { w.set(obj, false) }

func (w *watcher) OnDelete(obj any) {
	if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	w.set(obj, true)
}

func (w *watcher) set(obj any, deleted bool) {
	o, ok := obj.(cache.Object)
	if !ok || o.GetNamespace() != w.key.Namespace || o.GetName() != w.key.Name {
		return
	}
	now := sighting{obj: o, deleted: deleted}
	if deleted {
		now.obj = nil
	}
	for {
		select {
		case w.newest <- now:
			return
		case before := <-w.newest:
			now.deleted = now.deleted || before.deleted
		}
	}
}
