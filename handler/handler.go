// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package handler

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/setpoint-dev/setpoint/internal/object"
)

// Handler returns the keys to reconcile because of an event. It must be safe for concurrent use,
// and should not block: its source's other events wait. The source retries failed events with
// backoff.
type Handler[K comparable] interface {
	// Keys returns the keys of an event, or an error to get the event again.
	Keys(ctx context.Context, e Event) ([]K, error)
}

// Func is a Handler function.
type Func[K comparable] func(ctx context.Context, e Event) ([]K, error)

// Keys calls f.
func (f Func[K]) Keys(ctx context.Context, e Event) ([]K, error) { return f(ctx, e) }

// typeChecker finds a source of the wrong type before anything runs. Sources ask handlers and
// predicates for it.
type typeChecker interface {
	// CheckType returns an error that names both types if example has the wrong type.
	CheckType(example Object) error
}

// Identity is an optional interface of a Handler such as Self, whose keys name the objects. The
// controller then reads the objects' annotations, even in events that a predicate drops.
type Identity[K comparable] interface {
	// Identity returns the object's key, or false if it has none. It runs for each event: be quick.
	Identity(o Object) (key K, ok bool)
}

// metadataOnly reports whether a handler or predicate calls only the methods of metav1.Object. A
// source does not decode objects for it that are stored as bytes. The answer must not change.
func metadataOnly(part any) bool {
	m, ok := part.(interface{ MetadataOnly() bool })
	return ok && m.MetadataOnly()
}

// Self returns the key of the object itself.
func Self() Handler[types.NamespacedName] { return self{} }

type self struct{}

func (self) Keys(_ context.Context, e Event) ([]types.NamespacedName, error) {
	return []types.NamespacedName{e.Key()}, nil
}

func (self) MetadataOnly() bool { return true }

func (self) Identity(o Object) (types.NamespacedName, bool) { return object.Key(o), true }

// Funcs is a Handler with a function per operation; nil returns no keys. For Initial and Stale, use
// Func.
type Funcs[T Object, K comparable] struct {
	// Create is called for an object that is new to this process, including the initial list.
	Create func(ctx context.Context, obj T) ([]K, error)
	// Update is called for a changed object, and for a resync with equal arguments.
	Update func(ctx context.Context, old, new T) ([]K, error)
	// Delete is called with the last known state.
	Delete func(ctx context.Context, obj T) ([]K, error)
}

// Keys calls the function of the event's operation.
func (f Funcs[T, K]) Keys(ctx context.Context, e Event) ([]K, error) {
	switch {
	case e.Old == nil:
		return call(ctx, f.Create, e.New)
	case e.New == nil:
		return call(ctx, f.Delete, e.Old)
	case f.Update == nil:
		return nil, nil
	}
	before, err := as[T](e.Old)
	if err != nil {
		return nil, err
	}
	update := func(ctx context.Context, after T) ([]K, error) { return f.Update(ctx, before, after) }
	return call(ctx, update, e.New)
}

func call[T Object, K comparable](ctx context.Context, f func(context.Context, T) ([]K, error), obj Object) ([]K, error) {
	if f == nil {
		return nil, nil
	}
	t, err := as[T](obj)
	if err != nil {
		return nil, err
	}
	return f(ctx, t)
}

// CheckType returns an error if the functions take another type, or all are nil.
func (f Funcs[T, K]) CheckType(example Object) error {
	if f.Create == nil && f.Update == nil && f.Delete == nil {
		return errors.New("handler.Funcs: all functions are nil; set at least one")
	}
	_, err := as[T](example)
	return err
}

func as[T Object](obj Object) (T, error) {
	t, ok := obj.(T)
	if !ok {
		return t, fmt.Errorf("handler: the function takes a %s, but the source delivers a %T", reflect.TypeFor[T](), obj)
	}
	return t, nil
}

// Map calls f for an object, and for both states of an update, so that a target whose reference was
// removed is reconciled, too.
func Map[T Object, K comparable](f func(ctx context.Context, obj T) ([]K, error)) Handler[K] {
	return mapper[T, K](f)
}

type mapper[T Object, K comparable] func(ctx context.Context, obj T) ([]K, error)

func (m mapper[T, K]) Keys(ctx context.Context, e Event) ([]K, error) {
	var keys []K
	for _, obj := range e.states() {
		t, err := as[T](obj)
		if err != nil {
			return nil, err
		}
		more, err := m(ctx, t)
		if err != nil {
			return nil, err
		}
		keys = union(keys, more)
	}
	return keys, nil
}

func (m mapper[T, K]) CheckType(example Object) error {
	_, err := as[T](example)
	return err
}

// few is the number of keys up to which union needs no map.
const few = 16

// union returns the keys of both slices without duplicates. b is the user's and stays unchanged.
func union[K comparable](a, b []K) []K {
	if len(a)+len(b) <= few {
		for _, k := range b {
			if !slices.Contains(a, k) {
				a = append(a, k)
			}
		}
		return a
	}
	seen := sets.New(a...)
	for _, k := range b {
		if !seen.Has(k) {
			seen.Insert(k)
			a = append(a, k)
		}
	}
	return a
}
