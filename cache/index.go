// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/listwatch"
)

// Index finds objects by values that are computed from them. NewIndex makes one.
type Index[T Object] struct {
	handle *Handle[T]
	id     string
	bad    listwatch.Broken // objects for which the function panicked
}

// NewIndex declares an index on the objects of a handle: values returns those that an object can be found by, none if it cannot
// be found. The function must depend on nothing but the object, and must not change it. Declare an index once, at any time; it
// lives as long as its informers. If the function panics, the object cannot be found by the index, and reads by it return an
// error that names the object, until the function has gone well for it or it is deleted.
func NewIndex[T Object](h *Handle[T], name string, values func(T) []string) *Index[T] {
	if h == nil {
		h = &Handle[T]{err: fmt.Errorf("cache.NewIndex(%q) was given no handle", name)}
	}
	x := &Index[T]{handle: h}
	switch {
	case h.err != nil:
		return x
	case values == nil:
		return x.reject(fmt.Errorf("cache.NewIndex(%s, %q) was given no function", h, name))
	case name == "":
		return x.reject(fmt.Errorf("cache.NewIndex(%s) was given no name", h))
	}
	x.id = h.group.addIndex(name, func(obj any) ([]string, error) {
		o, ok := obj.(T)
		if !ok {
			return nil, nil
		}
		var found []string
		if err := recovered(func() { found = values(o) }); err != nil {
			x.bad.Add(o, fmt.Errorf("the index %q failed: %w", name, err))
			return nil, nil
		}
		x.bad.Remove(o)
		return found, nil
	})
	return x
}

func (x *Index[T]) reject(err error) *Index[T] {
	x.handle.cache.Reject(err)
	x.handle.err = err
	return x
}

// addIndex adds an index to every member, now and later, and returns the name that it goes by.
func (g *group) addIndex(name string, f toolscache.IndexFunc) (id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// Others may have declared an index of the same name on the same informer, in another cache even, if it was adopted.
	id = fmt.Sprintf("%s#%d of %p", name, g.cache.serial.Add(1), g.cache)
	g.indexers[id] = f
	for _, i := range g.members.Load().by {
		_ = i.shared.AddIndexers(toolscache.Indexers{id: f}) // the name is unique
	}
	return id
}

// List returns copies of the objects that have a value, narrowed by o, in no particular order.
func (x *Index[T]) List(ctx context.Context, value string, o ListOptions) ([]T, error) {
	return collect(x.All(ctx, value, o))
}

// All iterates as Handle.All does, over the objects that have a value.
func (x *Index[T]) All(ctx context.Context, value string, o ListOptions) iter.Seq2[T, error] {
	return x.handle.all(ctx, o, func(i *informer) ([]any, error) {
		if err := x.failure(i); err != nil {
			return nil, err
		}
		return i.shared.GetIndexer().ByIndex(x.id, value)
	})
}

// failure returns why the index lacks an object that is there.
func (x *Index[T]) failure(i *informer) error {
	for name, err := range x.bad.All() {
		if _, there, _ := i.shared.GetStore().GetByKey(storeKey(name)); there {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Owned iterates as All does, over the objects that have an owner reference to the object with this UID, controlling or not.
// client.Collect makes a slice of it, for Prune for instance.
func (h *Handle[T]) Owned(ctx context.Context, owner types.UID, o ListOptions) iter.Seq2[T, error] {
	return h.all(ctx, o, func(i *informer) ([]any, error) {
		return i.shared.GetIndexer().ByIndex(byOwner, string(owner))
	})
}
