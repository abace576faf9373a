// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"time"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache/internal/coalesce"
	"github.com/setpoint-dev/setpoint/internal/storage"
)

// goInformer is an informer of Records as one of Go objects, for code that knows no Records.
type goInformer struct{ toolscache.SharedIndexInformer }

func (u goInformer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return u.SharedIndexInformer.AddEventHandler(goHandler{h})
}

func (u goInformer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, period time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return u.SharedIndexInformer.AddEventHandlerWithResyncPeriod(goHandler{h}, period)
}

func (u goInformer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return u.SharedIndexInformer.AddEventHandlerWithOptions(goHandler{h}, options)
}

func (u goInformer) AddIndexers(indexers toolscache.Indexers) error {
	return u.SharedIndexInformer.AddIndexers(decodingIndexers(indexers))
}

func (u goInformer) GetStore() toolscache.Store { return u.GetIndexer() }

func (u goInformer) GetIndexer() toolscache.Indexer {
	return goIndexer{u.SharedIndexInformer.GetIndexer()}
}

func decodingIndexers(indexers toolscache.Indexers) toolscache.Indexers {
	decoding := toolscache.Indexers{}
	for name, f := range indexers {
		decoding[name] = func(obj any) ([]string, error) {
			if o := storage.Indexed(obj); o != nil {
				return f(o)
			}
			return []string{unknowable}, nil
		}
	}
	return decoding
}

// goIndexer is the store of a goInformer. It leaves out objects that cannot be decoded.
type goIndexer struct{ toolscache.Indexer }

// storedIndexer returns the store itself, which identifies an informer.
func storedIndexer(i toolscache.SharedIndexInformer) toolscache.Indexer {
	if u, ok := i.GetIndexer().(goIndexer); ok {
		return u.Indexer
	}
	return i.GetIndexer()
}

func (u goIndexer) AddIndexers(indexers toolscache.Indexers) error {
	return u.Indexer.AddIndexers(decodingIndexers(indexers))
}

func (u goIndexer) List() []any { return allWhole(u.Indexer.List()) }

func (u goIndexer) Index(name string, obj any) ([]any, error) {
	found, err := u.Indexer.Index(name, obj)
	return allWhole(found), err
}

func (u goIndexer) ByIndex(name, value string) ([]any, error) {
	found, err := u.Indexer.ByIndex(name, value)
	return allWhole(found), err
}

func (u goIndexer) Get(obj any) (any, bool, error) {
	found, _, err := u.Indexer.Get(obj)
	found = whole(found)
	return found, found != nil, err
}

func (u goIndexer) GetByKey(key string) (any, bool, error) {
	found, _, err := u.Indexer.GetByKey(key)
	found = whole(found)
	return found, found != nil, err
}

func allWhole(stored []any) []any {
	all := make([]any, 0, len(stored))
	for _, obj := range stored {
		if o := whole(obj); o != nil {
			all = append(all, o)
		}
	}
	return all
}

// whole returns a stored object in its Go form, or nil if it cannot be decoded.
func whole(stored any) any {
	o, _ := storage.Shared(stored)
	return o
}

// goHandler is an event handler that gets Records in their Go form.
type goHandler struct {
	toolscache.ResourceEventHandler
}

func (u goHandler) OnAdd(obj any, initial bool) {
	if o := whole(obj); o != nil {
		u.ResourceEventHandler.OnAdd(o, initial)
	}
}

func (u goHandler) OnUpdate(before, after any) {
	n := whole(after)
	if n == nil {
		return
	}
	o := n
	if before != after { // else it is a resync
		o = whole(before)
	}
	if o == nil {
		u.ResourceEventHandler.OnAdd(n, false)
		return
	}
	u.ResourceEventHandler.OnUpdate(o, n)
}

func (u goHandler) OnDelete(obj any) {
	if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		tombstone.Obj = storage.Final(tombstone.Obj)
		u.ResourceEventHandler.OnDelete(tombstone)
		return
	}
	u.ResourceEventHandler.OnDelete(storage.Final(obj))
}

func (u goHandler) OnMark(mark string) {
	if m, ok := u.ResourceEventHandler.(coalesce.Marked); ok {
		m.OnMark(mark)
	}
}
