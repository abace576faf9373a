// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/listwatch"
)

// registration is a subscription's event handler on one informer. Where the informer may leave the scope it keeps what the
// handler has been told of: client-go drops what still waits for a handler when that is removed, deletes included.
type registration struct {
	toolscache.ResourceEventHandlerRegistration

	handler toolscache.ResourceEventHandler
	changes bool // the scope may
	told    *handled

	mu   sync.Mutex // guards seen
	seen map[types.NamespacedName]Object
}

// handled returns what the handler was told of last, object by object.
func (r *registration) handled() map[types.NamespacedName]Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.seen)
}

func (r *registration) note(obj any, there bool) {
	if !r.changes {
		return
	}
	if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	o, ok := obj.(Object)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !there:
		delete(r.seen, listwatch.NameOf(o))
	case r.seen == nil:
		r.seen = map[types.NamespacedName]Object{listwatch.NameOf(o): o}
	default:
		r.seen[listwatch.NameOf(o)] = o
	}
}

// OnAdd implements toolscache.ResourceEventHandler.
func (r *registration) OnAdd(obj any, initial bool) {
	r.note(obj, true)
	r.handler.OnAdd(obj, initial)
	r.told.note(nil, obj)
}

// OnUpdate implements toolscache.ResourceEventHandler.
func (r *registration) OnUpdate(before, after any) {
	r.note(after, true)
	r.handler.OnUpdate(before, after)
	r.told.note(before, after)
}

// OnDelete implements toolscache.ResourceEventHandler.
func (r *registration) OnDelete(obj any) {
	r.note(obj, false)
	r.handler.OnDelete(obj)
	r.told.note(obj, nil)
}
