// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"runtime"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/packed"
)

// Get returns a copy of one object. If it does not exist, or the scope's selectors exclude it,
// apierrors.IsNotFound is true for the error. An object outside the scope's namespaces or names is
// another error.
//
// Get waits for the initial list until ctx ends. If the list fails, for example because access is
// forbidden, it returns the reason at once; WaitForSync waits on. After the first list it returns
// the last known state; Stale reports whether that may be old.
func (h *Handle[T]) Get(ctx context.Context, name types.NamespacedName) (T, error) {
	obj, err := h.handle.get(ctx, name)
	if err != nil {
		return *new(T), err
	}
	var o T
	if obj, err = h.handle.unpack(obj); err == nil {
		o, err = h.give(obj)
	}
	if err != nil {
		return o, fmt.Errorf("get %s %s: %w", h.handle.gvk.Kind, name, err)
	}
	return o, nil
}

func (h *handle) get(ctx context.Context, name types.NamespacedName) (any, error) {
	obj, err := h.lookUp(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("get %s %s: %w", h.what(), storeKey(name), err)
	}
	if obj == nil {
		return nil, h.notFound(name)
	}
	return obj, nil
}

func (h *handle) what() string {
	if h.gvk.Kind == "" {
		return h.of.String()
	}
	return h.gvk.Kind
}

// lookUp returns nil for an object that does not exist.
func (h *handle) lookUp(ctx context.Context, name types.NamespacedName) (any, error) {
	if err := h.usable(); err != nil {
		return nil, err
	}
	if err := h.group.declaredIn(ctx); err != nil {
		return nil, err
	}
	if err := h.group.located(ctx); err != nil {
		return nil, err
	}
	i, err := h.group.member(name)
	if err != nil {
		return nil, err
	}
	if err := i.readable(ctx); err != nil {
		return nil, err
	}
	if err := i.fits(name.Namespace, true); err != nil {
		return nil, err
	}
	if err := i.awaitSlot(ctx, name); err != nil {
		return nil, err
	}
	if err := i.undecodable(name); err != nil {
		return nil, err
	}
	obj, _, err := i.shared.GetStore().GetByKey(storeKey(name))
	return obj, err
}

func (h *handle) notFound(name types.NamespacedName) error {
	resource, _ := meta.UnsafeGuessKindToResource(h.gvk) // for the message only
	if m := h.group.mapping(); m != nil {
		resource = m.Resource
	}
	err := apierrors.NewNotFound(resource.GroupResource(), name.Name)
	k := h.group.key
	if k.labels != "" || k.fields != "" {
		err.ErrStatus.Message += " among those of this handle (" + k.String() + ")"
	}
	return err
}

// ListOptions narrows a list. The zero value selects everything in the handle's scope.
type ListOptions struct {
	// Namespace to list. Default: all.
	Namespace string
	// Selector selects by labels. Default: all.
	Selector labels.Selector
	// Limit is the maximum number of objects. Which ones are returned is not defined. It must not
	// be negative. Default 0: no limit.
	Limit int
}

// List returns copies of the objects, in no particular order. It waits and fails like Get.
func (h *Handle[T]) List(ctx context.Context, o ListOptions) ([]T, error) {
	return h.list(ctx, o, stored(o))
}

// All iterates over copies of the objects, like List. An error is the last element.
func (h *Handle[T]) All(ctx context.Context, o ListOptions) iter.Seq2[T, error] {
	return h.all(ctx, o, stored(o))
}

func stored(o ListOptions) func(*informer) ([]any, error) {
	return func(i *informer) ([]any, error) {
		if o.Namespace == "" {
			return i.shared.GetIndexer().List(), nil
		}
		return i.shared.GetIndexer().ByIndex(toolscache.NamespaceIndex, o.Namespace)
	}
}

func (h *Handle[T]) all(ctx context.Context, o ListOptions, of func(*informer) ([]any, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		h.handle.each(ctx, o, of, func(obj any, err error) (more bool) {
			if err == nil {
				if obj, err = h.handle.unpack(obj); err != nil {
					return true // State has the error
				}
			}
			var given T
			if err == nil {
				given, err = h.give(obj)
			}
			return yield(given, err) && err == nil
		})
	}
}

// list is all as a slice. Several goroutines decode the packed objects of a long list.
func (h *Handle[T]) list(ctx context.Context, o ListOptions, of func(*informer) ([]any, error)) ([]T, error) {
	objects, err := h.handle.list(ctx, o, of)
	if err != nil || len(objects) == 0 {
		return nil, err
	}
	list := make([]T, len(objects))
	for n, obj := range objects {
		if list[n], err = h.give(obj); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (h *handle) list(ctx context.Context, o ListOptions, of func(*informer) ([]any, error)) (objects []any, err error) {
	h.each(ctx, o, of, func(obj any, wrong error) (more bool) {
		objects, err = append(objects, obj), wrong
		return err == nil
	})
	return h.decode(objects), err
}

// each calls do for the objects that o selects, while do returns true, or once with an error.
func (h *handle) each(ctx context.Context, o ListOptions, of func(*informer) ([]any, error), do func(obj any, err error) (more bool)) {
	found, err := h.find(ctx, o, of)
	if err != nil {
		do(nil, fmt.Errorf("list %s: %w", h.what(), err))
		return
	}
	n := 0
	for _, objects := range found {
		for _, obj := range objects {
			if !o.matches(obj) {
				continue
			}
			if n++; !do(obj, nil) || n == o.Limit {
				return
			}
		}
	}
}

func (h *handle) find(ctx context.Context, o ListOptions, of func(*informer) ([]any, error)) ([][]any, error) {
	if err := h.usable(); err != nil {
		return nil, err
	}
	if err := h.group.declaredIn(ctx); err != nil {
		return nil, err
	}
	if o.Limit < 0 {
		return nil, fmt.Errorf("cache.ListOptions.Limit is %d, it must not be negative", o.Limit)
	}
	if err := h.group.located(ctx); err != nil {
		return nil, err
	}
	members, err := h.group.within(o.Namespace)
	if err != nil {
		return nil, err
	}
	var found [][]any
	for _, i := range members {
		if err := i.readable(ctx); err != nil {
			return nil, err
		}
		if err := i.fits(o.Namespace, false); err != nil {
			return nil, err
		}
		objects, err := of(i)
		if err != nil {
			return nil, err
		}
		found = append(found, objects)
	}
	return found, nil
}

func (o ListOptions) matches(obj any) bool {
	if o.Namespace == "" && (o.Selector == nil || o.Selector.Empty()) {
		return true
	}
	m, ok := obj.(Object)
	return ok && (o.Namespace == "" || m.GetNamespace() == o.Namespace) && (o.Selector == nil || o.Selector.Matches(labels.Set(m.GetLabels())))
}

// give returns an object that is stored, or else a copy; unpack has already made one of a packed
// object. It fails for an adopted informer of another type.
func (h *Handle[T]) give(obj any) (T, error) {
	o, ok := obj.(T)
	if !ok {
		return o, misfit(reflect.TypeFor[T](), obj)
	}
	if h.handle.shared || h.handle.packed() {
		return o, nil
	}
	return o.DeepCopyObject().(T), nil //nolint:forcetypeassert // a copy has the same type
}

// some is the number of objects from which several goroutines decode a list.
const some = 256

func (h *handle) packed() bool { return h.group != nil && h.group.key.packed }

// decode returns stored objects as a read does: copies or, for a shared handle, the same objects as
// for others. It leaves out objects that cannot be decoded.
func (h *handle) decode(stored []any) []any {
	if len(stored) == 0 || !h.packed() {
		return stored
	}
	decoded := make([]any, len(stored))
	one := func(from, to int) {
		for n := from; n < to; n++ {
			decoded[n], _ = h.unpack(stored[n])
		}
	}
	var all sync.WaitGroup
	share := max(some, (len(stored)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for from := share; from < len(stored); from += share {
		all.Go(func() { one(from, min(from+share, len(stored))) })
	}
	one(0, min(share, len(stored)))
	all.Wait()
	left := decoded[:0]
	for _, obj := range decoded {
		if obj != nil {
			left = append(left, obj)
		}
	}
	return left
}

// unpack returns a stored object, decoded if it is packed.
func (h *handle) unpack(obj any) (any, error) {
	p, ok := obj.(*packed.Object)
	if !ok {
		return obj, nil
	}
	var o Object
	var err error
	if h.shared {
		o, err = p.Shared()
	} else {
		o, err = p.Decode()
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}
