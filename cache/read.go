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
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/internal/contextkey"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/storage"
)

// Get returns a copy of one object. If it does not exist, or the scope's selectors exclude it,
// apierrors.IsNotFound is true for the error. An object outside the scope's namespaces or names is
// another error, and so is an object that does not fit the Go type: an UndecodableError.
//
// Get waits for the initial list until ctx ends. If the list fails, for example because access is
// forbidden, it returns the reason at once; WaitForSync waits on. If the kind is not served,
// meta.IsNoMatchError is true for the error. After the first list it returns the last known state;
// Stale reports whether that may be old.
func (h *Handle[T]) Get(ctx context.Context, name types.NamespacedName) (T, error) {
	obj, err := h.handle.get(ctx, name)
	if err != nil {
		return *new(T), err
	}
	var o T
	if obj, err = h.handle.read(obj); err != nil {
		err = newUndecodable(name, err)
	} else {
		o, err = h.give(obj)
	}
	if err != nil {
		return o, fmt.Errorf("get %s %s: %w", h.handle.gvk.Kind, object.Name(name), err)
	}
	return o, nil
}

func (h *handle) get(ctx context.Context, name types.NamespacedName) (any, error) {
	obj, err := h.lookUp(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("get %s %s: %w", h.what(), object.Name(name), err)
	}
	h.note(ctx, name, obj)
	if obj == nil {
		return nil, h.notFound(name)
	}
	return obj, nil
}

// note tells the Reconcile of a context, if any, about a read.
func (h *handle) note(ctx context.Context, name types.NamespacedName, stored any) {
	if r, ok := ctx.Value(contextkey.Reads{}).(contextkey.Reader); ok {
		r.Read(h.gvk, name, stored)
	}
}

func (h *handle) what() string {
	if h.gvk.Kind == "" {
		return h.of.String()
	}
	return h.gvk.Kind
}

func (h *handle) readable(ctx context.Context) error {
	if err := h.usable(); err != nil {
		return err
	}
	if !h.group.key.foreign.hasStore() {
		return fmt.Errorf("%s cannot be read; adopt a SharedIndexInformer, or use cache.For", h.group)
	}
	if err := h.group.declaredIn(ctx); err != nil {
		return err
	}
	return h.group.located(ctx)
}

// lookUp returns nil for an object that does not exist.
func (h *handle) lookUp(ctx context.Context, name types.NamespacedName) (any, error) {
	if err := h.readable(ctx); err != nil {
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
	if err := i.Undecodable(name); err != nil {
		return nil, newUndecodable(name, err)
	}
	obj, _, err := i.indexer().GetByKey(object.Name(name))
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
	// Labels selects by labels. Default: all.
	Labels labels.Selector
	// Limit is the maximum number of objects. Which ones are returned is not defined. It must not
	// be negative. Default 0: no limit.
	Limit int
}

// List returns copies of the objects, in no particular order. It waits and fails like Get. If some
// objects do not fit the Go type, List returns the others with an UndecodableError.
func (h *Handle[T]) List(ctx context.Context, o ListOptions) ([]T, error) {
	return h.list(ctx, o, everythingIn(o.Namespace))
}

// All iterates over copies of the objects, like List. An error is the last element, after all
// objects that fit the Go type.
func (h *Handle[T]) All(ctx context.Context, o ListOptions) iter.Seq2[T, error] {
	return h.all(ctx, o, everythingIn(o.Namespace))
}

func (h *Handle[T]) all(ctx context.Context, o ListOptions, s selection) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		n := 0
		err := h.handle.each(ctx, o, s, func(obj any) (more bool, err error) {
			given, err := h.give(obj)
			if err != nil {
				return false, err
			}
			n++
			return yield(given, nil) && n != o.Limit, nil
		})
		if err != nil {
			yield(*new(T), err)
		}
	}
}

// list is all as a slice. Several goroutines read the objects of a long list.
func (h *Handle[T]) list(ctx context.Context, o ListOptions, s selection) ([]T, error) {
	objects, err := h.handle.list(ctx, o, s)
	if len(objects) == 0 {
		return nil, err
	}
	list := make([]T, len(objects))
	for n, obj := range objects {
		var wrong error
		if list[n], wrong = h.give(obj); wrong != nil {
			return nil, wrong
		}
	}
	return list, err
}

func (h *handle) list(ctx context.Context, o ListOptions, s selection) (objects []any, err error) {
	found, err := h.find(ctx, o, s)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", h.what(), err)
	}
	var left leftovers
	var batch []any // as many as may still be missing
	for obj := range found.matching(o, s, &left) {
		batch = append(batch, obj)
		if o.Limit == 0 || len(objects)+len(batch) < o.Limit {
			continue
		}
		objects = append(objects, h.readAll(batch, &left)...)
		if len(objects) == o.Limit {
			return objects, nil
		}
		batch = batch[:0]
	}
	if batch = h.readAll(batch, &left); objects == nil {
		objects = batch
	} else {
		objects = append(objects, batch...)
	}
	return objects, h.leftOut(&left)
}

// each calls do for the objects that o and s select, decoded, until do returns false or an error.
func (h *handle) each(ctx context.Context, o ListOptions, s selection, do func(obj any) (more bool, err error)) error {
	found, err := h.find(ctx, o, s)
	if err != nil {
		return fmt.Errorf("list %s: %w", h.what(), err)
	}
	var left leftovers
	for stored := range found.matching(o, s, &left) {
		obj, err := h.read(stored)
		if err != nil {
			left.add(nameOf(stored), err)
			continue
		}
		if more, err := do(obj); !more || err != nil {
			return err
		}
	}
	return h.leftOut(&left)
}

func (h *handle) leftOut(left *leftovers) error {
	if err := left.err(); err != nil {
		return fmt.Errorf("list %s: %w", h.what(), err)
	}
	return nil
}

func nameOf(stored any) types.NamespacedName {
	o, _ := stored.(Object) // it is a Record
	return object.Key(o)
}

// found is what a read has found, of each informer.
type found []part

type part struct {
	objects []any // as stored
	// misfits cannot be decoded. Those in objects are in an earlier state.
	misfits map[types.NamespacedName]*listwatch.Misfit
}

// matching iterates over the stored objects that o selects, and adds those to left that are known
// not to fit.
func (f found) matching(o ListOptions, s selection, left *leftovers) iter.Seq[any] {
	return func(yield func(any) bool) {
		for _, p := range f {
			for _, obj := range p.objects {
				if o.matches(obj) && !p.misfit(obj) && !yield(obj) {
					return
				}
			}
			for name, m := range p.misfits {
				if o.mayMatch(m) && s.mayHave(m) {
					left.add(name, m.Err)
				}
			}
		}
	}
}

func (p *part) misfit(obj any) bool {
	if len(p.misfits) == 0 {
		return false
	}
	o, ok := obj.(Object)
	return ok && p.misfits[object.Key(o)] != nil
}

func (h *handle) find(ctx context.Context, o ListOptions, s selection) (found, error) {
	if o.Limit < 0 {
		return nil, fmt.Errorf("cache.ListOptions.Limit is %d, it must not be negative", o.Limit)
	}
	if err := h.readable(ctx); err != nil {
		return nil, err
	}
	members, err := h.group.within(o.Namespace)
	if err != nil {
		return nil, err
	}
	var all found
	for _, i := range members {
		if err := i.readable(ctx); err != nil {
			return nil, err
		}
		if err := i.fits(o.Namespace, false); err != nil {
			return nil, err
		}
		misfits := i.misfits() // before the store is read
		objects, err := s.find(i)
		if err != nil {
			return nil, err
		}
		all = append(all, part{objects, misfits})
	}
	h.note(ctx, types.NamespacedName{}, nil)
	return all, nil
}

func (o ListOptions) matches(obj any) bool {
	if o.Namespace == "" && (o.Labels == nil || o.Labels.Empty()) {
		return true
	}
	m, ok := obj.(Object)
	switch {
	case !ok || o.Namespace != "" && m.GetNamespace() != o.Namespace:
		return false
	case o.Labels == nil:
		return true
	}
	set, ok := storage.Labels(m)
	return !ok || o.Labels.Matches(labels.Set(set)) // if not ok, it cannot be decoded
}

// give returns an object that was read. It fails for an adopted informer of another type.
func (h *Handle[T]) give(obj any) (T, error) {
	o, ok := obj.(T)
	if !ok {
		return o, misfit(reflect.TypeFor[T](), obj)
	}
	return o, nil
}

// some is the number of objects from which several goroutines read a list.
const some = 256

// read returns a stored object in its Go form: a copy or, for a shared handle, the same one as for
// others.
func (h *handle) read(stored any) (any, error) {
	if h.shared {
		return storage.Shared(stored)
	}
	return storage.Copy(stored)
}

// readAll reads stored objects. It adds those to left that cannot be decoded.
func (h *handle) readAll(stored []any, left *leftovers) []any {
	if len(stored) == 0 {
		return stored
	}
	// All are Records, or none. An adopted informer may be another cache's.
	_, records := stored[0].(storage.Record)
	if h.shared && !records {
		return stored
	}
	objects, errs := make([]any, len(stored)), make([]error, len(stored))
	var panicked atomic.Pointer[any] // of a type's method
	one := func(from, to int) {
		defer func() {
			if p := recover(); p != nil {
				panicked.Store(&p)
			}
		}()
		for n := from; n < to; n++ {
			objects[n], errs[n] = h.read(stored[n])
		}
	}
	var all sync.WaitGroup
	share := len(stored)
	if records { // copies take more processor time in several goroutines, decoding does not
		share = max(some, (len(stored)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	}
	for from := share; from < len(stored); from += share {
		all.Go(func() { one(from, min(from+share, len(stored))) })
	}
	one(0, min(share, len(stored)))
	all.Wait()
	if p := panicked.Load(); p != nil {
		panic(*p) // for the caller, who may recover it
	}
	fit := objects[:0]
	for n, obj := range objects {
		if errs[n] != nil {
			left.add(nameOf(stored[n]), errs[n])
		} else {
			fit = append(fit, obj)
		}
	}
	return fit
}
