// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"time"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache/internal/coalesce"
	"github.com/setpoint-dev/setpoint/internal/packed"
)

// unpacked is a packed informer as a client-go informer of Go objects, for code that knows no
// packed objects.
type unpacked struct{ toolscache.SharedIndexInformer }

func (u unpacked) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return u.SharedIndexInformer.AddEventHandler(unpacking{h})
}

func (u unpacked) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, period time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return u.SharedIndexInformer.AddEventHandlerWithResyncPeriod(unpacking{h}, period)
}

func (u unpacked) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return u.SharedIndexInformer.AddEventHandlerWithOptions(unpacking{h}, options)
}

func (u unpacked) AddIndexers(indexers toolscache.Indexers) error {
	return u.SharedIndexInformer.AddIndexers(unpackedIndexers(indexers))
}

func (u unpacked) GetStore() toolscache.Store { return u.GetIndexer() }

func (u unpacked) GetIndexer() toolscache.Indexer {
	return unpackedIndexer{u.SharedIndexInformer.GetIndexer()}
}

func unpackedIndexers(indexers toolscache.Indexers) toolscache.Indexers {
	decoding := toolscache.Indexers{}
	for name, f := range indexers {
		decoding[name] = func(obj any) ([]string, error) {
			if o := indexed(obj); o != nil {
				return f(o)
			}
			return []string{unknowable}, nil
		}
	}
	return decoding
}

// unpackedIndexer is the store of a packed informer. It leaves out objects that cannot be decoded.
type unpackedIndexer struct{ toolscache.Indexer }

// packedIndexer returns the store itself, which identifies an informer.
func packedIndexer(i toolscache.SharedIndexInformer) toolscache.Indexer {
	if u, ok := i.GetIndexer().(unpackedIndexer); ok {
		return u.Indexer
	}
	return i.GetIndexer()
}

func (u unpackedIndexer) AddIndexers(indexers toolscache.Indexers) error {
	return u.Indexer.AddIndexers(unpackedIndexers(indexers))
}

func (u unpackedIndexer) List() []any { return allWhole(u.Indexer.List()) }

func (u unpackedIndexer) Index(name string, obj any) ([]any, error) {
	found, err := u.Indexer.Index(name, obj)
	return allWhole(found), err
}

func (u unpackedIndexer) ByIndex(name, value string) ([]any, error) {
	found, err := u.Indexer.ByIndex(name, value)
	return allWhole(found), err
}

func (u unpackedIndexer) Get(obj any) (any, bool, error) {
	found, _, err := u.Indexer.Get(obj)
	found = whole(found)
	return found, found != nil, err
}

func (u unpackedIndexer) GetByKey(key string) (any, bool, error) {
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

// whole returns a stored object in its Go form, which others may have too, or nil if it cannot be
// decoded.
func whole(obj any) any { return decodedBy(obj, (*packed.Object).Shared) }

// indexed is whole for index functions.
func indexed(obj any) any { return decodedBy(obj, (*packed.Object).Indexed) }

func decodedBy(obj any, decode func(*packed.Object) (Object, error)) any {
	p, ok := obj.(*packed.Object)
	if !ok {
		return obj
	}
	o, err := decode(p)
	if err != nil {
		return nil
	}
	return o
}

// unpacking is an event handler that gets packed objects in their Go form.
type unpacking struct {
	toolscache.ResourceEventHandler
}

func (u unpacking) OnAdd(obj any, initial bool) {
	if o := whole(obj); o != nil {
		u.ResourceEventHandler.OnAdd(o, initial)
	}
}

func (u unpacking) OnUpdate(before, after any) {
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

func (u unpacking) OnDelete(obj any) {
	if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		tombstone.Obj = final(tombstone.Obj)
		u.ResourceEventHandler.OnDelete(tombstone)
		return
	}
	u.ResourceEventHandler.OnDelete(final(obj))
}

func (u unpacking) OnMark(mark string) {
	if m, ok := u.ResourceEventHandler.(coalesce.Marked); ok {
		m.OnMark(mark)
	}
}

// final returns the last state of a deleted object: only metadata if it cannot be decoded.
func final(obj any) any {
	if o := whole(obj); o != nil {
		return o
	}
	if p, ok := obj.(*packed.Object); ok {
		return p.Outline()
	}
	return obj // client-go did not find the last state
}
