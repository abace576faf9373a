// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package handler

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Handler says which keys an event makes due. It must be safe for concurrent use and should not block for long: it holds
// up the other events of its source. An error means that the keys are not known: the source tries the event again.
type Handler[K comparable] interface {
	Keys(ctx context.Context, e Event) ([]K, error)
}

// Func makes a Handler of a function.
type Func[K comparable] func(ctx context.Context, e Event) ([]K, error)

// Keys calls f.
func (f Func[K]) Keys(ctx context.Context, e Event) ([]K, error) { return f(ctx, e) }

// CheckType refuses a nil function.
func (f Func[K]) CheckType(Object) error {
	if f == nil {
		return errors.New("handler.Func is nil")
	}
	return nil
}

// TypeChecker is what a Handler or a Filter may implement to refuse a source of the wrong type before anything runs.
type TypeChecker interface {
	// CheckType returns an error that names both types if events about objects like example are not for it.
	CheckType(example Object) error
}

// Self makes the object itself due.
func Self() Handler[types.NamespacedName] {
	return Func[types.NamespacedName](func(_ context.Context, e Event) ([]types.NamespacedName, error) {
		return []types.NamespacedName{e.Key()}, nil
	})
}

// Kind is an API kind of known scope. A *cache.Handle is one.
type Kind interface {
	// GroupVersionKind returns the kind.
	GroupVersionKind() schema.GroupVersionKind
	// Namespaced says whether objects of the kind live in namespaces. It may have to ask the API server the first time.
	Namespaced(ctx context.Context) (bool, error)
}

// Owner makes the controlling owner due if it is of the given kind, in any version of its group. The owner is looked up in
// the old and in the new state, so that the former owner of an object that changed hands is due as well.
func Owner(of Kind) Handler[types.NamespacedName] { return owner{of} }

type owner struct{ kind Kind }

// CheckType refuses a missing kind.
func (o owner) CheckType(Object) error {
	if v := reflect.ValueOf(o.kind); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("handler.Owner was given no kind")
	}
	return nil
}

func (o owner) Keys(ctx context.Context, e Event) ([]types.NamespacedName, error) {
	var keys []types.NamespacedName
	for _, obj := range []Object{e.Old, e.New} {
		ref := o.ref(obj)
		if ref == nil {
			continue
		}
		namespaced, err := o.kind.Namespaced(ctx)
		if err != nil {
			return nil, fmt.Errorf("owner of %s: %w", e.Key(), err)
		}
		key := types.NamespacedName{Name: ref.Name}
		if namespaced {
			key.Namespace = obj.GetNamespace()
		}
		if len(keys) == 0 || keys[0] != key {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// ref is the object's controlling owner, if it is of our kind.
func (o owner) ref(obj Object) *metav1.OwnerReference {
	if obj == nil {
		return nil
	}
	ref := metav1.GetControllerOf(obj)
	want := o.kind.GroupVersionKind()
	if ref == nil || ref.Kind != want.Kind {
		return nil
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || gv.Group != want.Group {
		return nil
	}
	return ref
}

// Map makes due what f says of the object. Of an update both states are mapped, so that a reference that was dropped still
// makes its former target due.
func Map[T Object, K comparable](f func(ctx context.Context, obj T) ([]K, error)) Handler[K] {
	return mapper[T, K](f)
}

type mapper[T Object, K comparable] func(ctx context.Context, obj T) ([]K, error)

func (m mapper[T, K]) Keys(ctx context.Context, e Event) ([]K, error) {
	var keys []K
	for _, obj := range []Object{e.Old, e.New} {
		if obj == nil {
			continue
		}
		t, err := as[T](obj)
		if err != nil {
			return nil, err
		}
		more, err := m(ctx, t)
		if err != nil {
			return nil, err
		}
		keys = append(keys, more...)
	}
	return keys, nil
}

func (m mapper[T, K]) CheckType(example Object) error {
	if m == nil {
		return errors.New("handler.Map was given no function")
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
