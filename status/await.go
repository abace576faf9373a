// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
)

// Await returns a copy of the object when it meets all goals. It reads status.conditions of any
// kind that has them, such as Deployments and Pods. A condition counts only if it is current:
// neither its observedGeneration nor status.observedGeneration, if present, is older than the
// object's generation.
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
	w := &watcher{key: key, changed: make(chan struct{}, 1)}
	fail := func(err error) (T, error) {
		return *new(T), fmt.Errorf("await %s of %s %s: %w", join(goals), h, nameOf(key), err)
	}
	if len(goals) == 0 {
		return *new(T), fmt.Errorf("await %s %s: no goals are given; name one, such as status.True(status.Ready)", h, nameOf(key))
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
	w.begin()
	for {
		obj, deleted := w.now()
		missing := describe(obj, goals)
		switch {
		case deleted:
			return fail(fmt.Errorf("it was deleted: %w", notFound(h, key)))
		case missing == "":
			if t, ok := obj.DeepCopyObject().(T); ok {
				return t, nil
			}
			return fail(fmt.Errorf("the informer has a %T", obj))
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
			if obj == nil {
				return fail(fmt.Errorf("%w: %w", notFound(h, key), context.Cause(ctx)))
			}
			return fail(fmt.Errorf("%s: %w", missing, context.Cause(ctx)))
		}
	}
}

func join(goals []Goal) string {
	names := make([]string, len(goals))
	for i, g := range goals {
		names[i] = g.String()
	}
	return strings.Join(names, ", ")
}

func notFound[T cache.Object](h *cache.Handle[T], key types.NamespacedName) error {
	resource, _ := meta.UnsafeGuessKindToResource(h.GroupVersionKind()) // for the message
	return apierrors.NewNotFound(resource.GroupResource(), key.Name)
}

// watcher is an event handler that keeps the newest state of one object.
type watcher struct {
	key     types.NamespacedName
	changed chan struct{} // receives after each change

	mu      sync.Mutex   // guards what follows
	obj     cache.Object // nil if it does not exist
	deleted bool
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
	w.store(o, deleted)
	select {
	case w.changed <- struct{}{}:
	default: // one is enough
	}
}

func (w *watcher) store(o cache.Object, deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if deleted {
		w.obj, w.deleted = nil, true
		return
	}
	w.obj = o
}

func (w *watcher) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deleted = false
}

func (w *watcher) now() (cache.Object, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.obj, w.deleted
}
