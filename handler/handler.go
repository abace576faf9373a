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
)

// Handler returns the keys that an event makes due. It must be safe for concurrent use and should
// not block for long: it holds up the other events of its source. If it returns an error, the source
// tries the event again.
type Handler[K comparable] interface {
	Keys(ctx context.Context, e Event) ([]K, error)
}

// Func makes a Handler of a function.
type Func[K comparable] func(ctx context.Context, e Event) ([]K, error)

// Keys calls f.
func (f Func[K]) Keys(ctx context.Context, e Event) ([]K, error) { return f(ctx, e) }

// TypeChecker is what a Handler or a Predicate may implement to refuse a source of the wrong type
// before anything runs.
type TypeChecker interface {
	// CheckType returns an error that names both types if the type of example is wrong.
	CheckType(example Object) error
}

// Identity is what a Handler implements if its keys name the objects themselves, as those of Self
// do. The controller then heeds the objects' annotations, whatever the predicates drop.
type Identity[K comparable] interface {
	// Identity returns the object's own key, or false if it has none. It is called once for each event
	// and must be quick.
	Identity(o Object) (key K, ok bool)
}

// Self makes the object itself due.
func Self() Handler[types.NamespacedName] { return self{} }

type self struct{}

func (self) Keys(_ context.Context, e Event) ([]types.NamespacedName, error) {
	return []types.NamespacedName{e.Key()}, nil
}

func (self) Identity(o Object) (types.NamespacedName, bool) { return keyOf(o), true }

// Funcs makes a Handler of a function for each operation. An operation without a function makes
// nothing due. To see the whole event, such as whether a create is of the initial list, use Func.
type Funcs[T Object, K comparable] struct {
	// Create is called for an object that is new to us. The initial list comes as creates.
	Create func(ctx context.Context, obj T) ([]K, error)
	// Update is called for an object that changed, or that a resync brought again as it was.
	Update func(ctx context.Context, old, new T) ([]K, error)
	// Delete is called for an object that is gone, with its last known state.
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

// CheckType refuses functions of another type, and to have none at all.
func (f Funcs[T, K]) CheckType(example Object) error {
	if f.Create == nil && f.Update == nil && f.Delete == nil {
		return errors.New("handler.Funcs has no function")
	}
	_, err := as[T](example)
	return err
}

// as is obj as a T, or an error that names both types.
func as[T Object](obj Object) (T, error) {
	t, ok := obj.(T)
	if !ok {
		return t, fmt.Errorf("a function of %s was given to a source of %T", reflect.TypeFor[T](), obj)
	}
	return t, nil
}

// Map makes due the keys that f returns for an object. It maps both states of an update: a reference
// that was dropped makes its former target due.
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

// few is how many keys union compares one by one.
const few = 16

// union returns the keys of both, each once. It does not change b, which is the user's.
func union[K comparable](a, b []K) []K {
	if len(a)+len(b) <= few {
		for _, k := range b {
			if !slices.Contains(a, k) {
				a = append(a, k)
			}
		}
		return a
	}
	seen := make(map[K]struct{}, len(a)+len(b))
	for _, k := range a {
		seen[k] = struct{}{}
	}
	for _, k := range b {
		if _, ok := seen[k]; !ok {
			seen[k] = struct{}{}
			a = append(a, k)
		}
	}
	return a
}
