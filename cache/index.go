// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// Index finds objects by values computed from them.
type Index[T Object] struct {
	handle *Handle[T]
	id     string
	bad    listwatch.Broken // objects for which the function panicked
}

// NewIndex declares an index on a handle's objects, once, at any time. It lives as long as its
// informers. values returns the values of an object, or none to leave it out. It must depend only
// on the object and not change it. The name is for errors.
//
// If values panics, reads of the index return an error that names the object, until values succeeds
// for it or it is deleted. A nil handle is an error of every read of the index. A nil function or
// an empty name is also an error of Validate, the manager's Run and every read of the handle.
func NewIndex[T Object](h *Handle[T], name string, values func(T) []string) *Index[T] {
	if h == nil {
		h = &Handle[T]{handle{of: reflect.TypeFor[T](), err: fmt.Errorf("cache.NewIndex(%q) was given no handle", name)}}
	}
	x := &Index[T]{handle: h}
	switch {
	case h.handle.err != nil:
		return x
	case values == nil:
		return x.reject(fmt.Errorf("cache.NewIndex(%s, %q) was given no function", h, name))
	case name == "":
		return x.reject(fmt.Errorf("cache.NewIndex(%s) was given no name", h))
	}
	x.id = h.handle.group.addIndex(name, func(obj any) ([]string, error) {
		whole := indexed(obj)
		if whole == nil {
			return []string{unknowable}, nil
		}
		o, ok := whole.(T)
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
	x.handle.handle.cache.Reject(err)
	x.handle.handle.err = err
	return x
}

func (g *group) addIndex(name string, f toolscache.IndexFunc) (id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// Another handle, even of another cache, may index the same informer by the same name.
	id = fmt.Sprintf("%s#%d of %p", name, g.cache.serial.Add(1), g.cache)
	g.indexers[id] = f
	for _, i := range g.members.Load().by {
		_ = i.shared.AddIndexers(toolscache.Indexers{id: f})
	}
	return id
}

// List returns copies of the objects with a value, narrowed by o. It is otherwise like Handle.List.
// An object that cannot be decoded may have any value.
func (x *Index[T]) List(ctx context.Context, value string, o ListOptions) ([]T, error) {
	return x.handle.list(ctx, o, x.with(value))
}

// All is List as an iterator.
func (x *Index[T]) All(ctx context.Context, value string, o ListOptions) iter.Seq2[T, error] {
	return x.handle.all(ctx, o, x.with(value))
}

func (x *Index[T]) with(value string) selection { return indexedBy{x.id, value, x.failure} }

// failure returns an error for an object that exists but is missing in the index.
func (x *Index[T]) failure(i *informer) error {
	for name, err := range x.bad.All() {
		if _, there, _ := i.shared.GetStore().GetByKey(object.Name(name)); there {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Owned is All for the objects with an owner reference to this UID, controlling or not.
// client.Collect makes a slice of it, for example for Prune.
func (h *Handle[T]) Owned(ctx context.Context, owner types.UID, o ListOptions) iter.Seq2[T, error] {
	return h.all(ctx, o, ownedBy(owner))
}

// selection is what a read selects beside its ListOptions.
type selection interface {
	// find returns the stored objects, perhaps with others that ListOptions exclude.
	find(i *informer) ([]any, error)
	// mayHave reports whether find might return an object, if that could be decoded.
	mayHave(m *listwatch.Misfit) bool
}

// everythingIn is all objects in a namespace, or everywhere.
type everythingIn string

func (namespace everythingIn) find(i *informer) ([]any, error) {
	if namespace == "" {
		return i.indexer().List(), nil
	}
	return i.indexer().ByIndex(toolscache.NamespaceIndex, string(namespace))
}

func (everythingIn) mayHave(*listwatch.Misfit) bool { return true }

// ownedBy is all objects with an owner.
type ownedBy types.UID

func (owner ownedBy) find(i *informer) ([]any, error) { return byIndex(i, byOwner, string(owner)) }

func (owner ownedBy) mayHave(m *listwatch.Misfit) bool {
	return m.AnyOwners || slices.ContainsFunc(m.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == types.UID(owner) })
}

// indexedBy is all objects with a value in an index.
type indexedBy struct {
	id, value string
	failure   func(*informer) error
}

func (x indexedBy) find(i *informer) ([]any, error) {
	if err := x.failure(i); err != nil {
		return nil, err
	}
	return byIndex(i, x.id, x.value)
}

func (indexedBy) mayHave(*listwatch.Misfit) bool { return true }

// byIndex also returns the objects that may have any value.
func byIndex(i *informer, id, value string) ([]any, error) {
	found, err := i.indexer().ByIndex(id, value)
	if err != nil || value == unknowable {
		return found, err
	}
	others, err := i.indexer().ByIndex(id, unknowable)
	if len(others) > 0 {
		found = append(found, others...)
	}
	return found, err
}
