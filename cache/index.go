// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/storage"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

// Index finds objects by values computed from them.
type Index[T Object] struct {
	handle *Handle[T]
	id     string
	bad    listwatch.Broken // objects for which the function panicked
}

// NewIndex declares an index on a handle's objects, once, at any time. It lives as long as its
// informers. values returns the values of an object, or none to leave it out. It must depend only
// on the object, not change it, and be safe for concurrent use. The name is for errors.
//
// fields are the object's fields that values reads, such as "spec" or "metadata". Default: all. Of
// an object that is stored as bytes, values gets only these, the namespace and the name, and is not
// called if they are as before. So a new status costs an index of the spec next to nothing. It is
// wrong to name a field that T does not have.
//
// If values panics, reads of the index return an error that names the object, until values succeeds
// for it or it is deleted. A nil handle is an error of every read of the index. A nil function,
// an empty name or a wrong field is also an error of Validate, the manager's Run and every read of
// the handle.
func NewIndex[T Object](h *Handle[T], name string, values func(T) []string, fields ...string) *Index[T] {
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
	parts, err := partsOf(reflect.TypeFor[T](), fields)
	if err != nil {
		return x.reject(fmt.Errorf("cache.NewIndex(%s, %q): %w", h, name, err))
	}
	x.id = h.handle.group.addIndex(name, &indexFunc{bad: &x.bad, fields: parts, find: func(obj any) (found []string, err error) {
		whole := storage.Indexed(obj)
		if whole == nil {
			return []string{unknowable}, nil
		}
		if o, ok := whole.(T); ok {
			err = recovered(func() { found = values(o) })
		}
		return found, err
	}})
	return x
}

func (x *Index[T]) reject(err error) *Index[T] {
	x.handle.handle.cache.Reject(err)
	x.handle.handle.err = err
	return x
}

func (g *group) addIndex(name string, x *indexFunc) (id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// Another handle, even of another cache, may index the same informer by the same name.
	x.name, x.id = name, fmt.Sprintf("%s#%d of %p", name, g.cache.serial.Add(1), g.cache)
	g.indexes = append(g.indexes, x)
	for _, i := range g.members.Load().by {
		i.addIndexes(x)
	}
	return x.id
}

// indexFunc computes an index.
type indexFunc struct {
	name, id string
	fields   []wire.Field // nil: all
	find     func(obj any) ([]string, error)
	bad      *listwatch.Broken
}

// partsOf finds the numbers of fields in protobuf.
func partsOf(t reflect.Type, names []string) (all []wire.Field, err error) {
	if len(names) > 0 && t.Kind() != reflect.Pointer {
		return nil, fmt.Errorf("it names fields, and %s has none; use a handle of a Go type", t)
	}
	free := t == reflect.TypeFor[*unstructured.Unstructured]()
	for n, name := range names {
		f := wire.Field{Name: name}
		ok := free
		if !free {
			f, ok = fieldOf(t.Elem(), name)
		}
		switch {
		case name == "":
			return nil, errors.New("a field has no name")
		case slices.Contains(names[:n], name):
			return nil, fmt.Errorf("the field %q is named twice", name)
		case !ok:
			return nil, fmt.Errorf("%s has no field %q in JSON", t, name)
		}
		all = append(all, f)
	}
	return all, nil
}

func fieldOf(t reflect.Type, name string) (f wire.Field, ok bool) {
	f.Name = name
	for n := range t.NumField() {
		tags := t.Field(n).Tag
		if inJSON, _, _ := strings.Cut(tags.Get("json"), ","); inJSON != name {
			continue
		}
		if parts := strings.Split(tags.Get("protobuf"), ","); len(parts) > 1 {
			f.Number, _ = strconv.Atoi(parts[1])
		}
		return f, true
	}
	return f, false
}

// addIndexes adds indexes to the store, unless the informer was a member before and has them.
func (i *informer) addIndexes(all ...*indexFunc) {
	i.indexing.Lock()
	defer i.indexing.Unlock()
	now, indexers := slices.Clone(i.indexes()), toolscache.Indexers{}
	for _, x := range all {
		if !slices.Contains(now, x) {
			now, indexers[x.id] = append(now, x), x.index
		}
	}
	i.indexed.Store(&now)
	_ = i.shared.AddIndexers(indexers) // fails only if the informer has stopped
}

func (i *informer) indexes() []*indexFunc {
	if all := i.indexed.Load(); all != nil {
		return *all
	}
	return nil
}

// prepare computes the values of a Record, which keeps them: client-go asks for them under the
// store's lock, and once more when the object is replaced.
func (x *indexFunc) prepare(r, before storage.Record) ([]string, error) {
	return r.Values(x.id, func() ([]string, error) {
		if x.fields == nil {
			return x.find(r)
		}
		if before != nil && !before.HasValues(x.id) {
			before = nil
		}
		o, err := r.Part(x.fields, before)
		switch {
		case err != nil: // its type may need other fields
			return x.find(r)
		case o == nil: // as before
			return before.Values(x.id, nil)
		}
		return x.find(o)
	})
}

// prepareIndexes computes all values of a Record that is going to be stored.
func (i *informer) prepareIndexes(r storage.Record) {
	all := i.indexes()
	if len(all) == 0 {
		return
	}
	obj, _, _ := i.indexer().GetByKey(object.Name(object.Key(r)))
	before, _ := obj.(storage.Record)
	for _, x := range all {
		_, _ = x.prepare(r, before)
	}
}

// index is a toolscache.IndexFunc. client-go calls it last for the object that is then in the
// store, so bad has that object's error.
func (x *indexFunc) index(obj any) (found []string, _ error) {
	o, ok := obj.(Object)
	if !ok {
		return nil, nil
	}
	var err error
	if r, ok := obj.(storage.Record); ok {
		found, err = x.prepare(r, nil)
	} else {
		found, err = x.find(obj)
	}
	if err != nil {
		x.bad.Add(o, fmt.Errorf("the index %q failed: %w", x.name, err))
		return nil, nil
	}
	x.bad.Remove(o)
	return found, nil
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
