// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"context"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
)

// Kind is a kind of children. Make it with [Of].
type Kind interface {
	// The first three are the handle's.
	GroupVersionKind() schema.GroupVersionKind
	Namespaced() (bool, error)
	OwnedVersions(ctx context.Context, owner types.UID, o cache.ListOptions) ([]cache.Version, error)
	check() error
	// is reports whether an object has the handle's Go type.
	is(obj client.Object) bool
	// source makes the owner of a changed object due.
	source(owners handler.Kind) source.Source[types.NamespacedName]
	get(ctx context.Context, key types.NamespacedName) (client.Object, error)
	getLive(ctx context.Context, c *client.Client, key types.NamespacedName) (client.Object, error)
	// apply applies an object. live is the present one, or nil.
	apply(ctx context.Context, c *client.Client, obj *unstructured.Unstructured, live client.Object) (client.Object, error)
	// remove deletes an object. It may be gone.
	remove(ctx context.Context, c *client.Client, obj client.Object) error
}

// Of returns the kind of a handle. The handle has the children of all owners in its scope, in whole
// objects and without a selector.
func Of[T client.Object](h *cache.Handle[T]) Kind { return kind[T]{h} }

type kind[T client.Object] struct{ *cache.Handle[T] }

func (k kind[T]) check() error {
	if k.Handle == nil {
		return fmt.Errorf("the handle of %s is nil; cache.For makes one", reflect.TypeFor[T]())
	}
	if reflect.TypeFor[T]() == reflect.TypeFor[*metav1.PartialObjectMetadata]() {
		return fmt.Errorf("the handle of %s has metadata only; give one of whole objects", k.GroupVersionKind().Kind)
	}
	return nil
}

func (k kind[T]) is(obj client.Object) bool {
	_, is := obj.(T)
	return is
}

func (k kind[T]) source(owners handler.Kind) source.Source[types.NamespacedName] {
	return source.Kind(k.Handle, handler.Owner(owners))
}

func (k kind[T]) get(ctx context.Context, key types.NamespacedName) (client.Object, error) {
	return k.Get(ctx, key)
}

func (k kind[T]) getLive(ctx context.Context, c *client.Client, key types.NamespacedName) (client.Object, error) {
	return client.ForKind[T](c, k.GroupVersionKind()).GetLive(ctx, key)
}

func (k kind[T]) apply(ctx context.Context, c *client.Client, obj *unstructured.Unstructured, live client.Object) (client.Object, error) {
	options := []client.Option{client.UnlessAlready(live)}
	if live == nil { // without force, an object that appeared since the read keeps its values
		options = append(options, client.NoForce())
	}
	return client.ForKind[T](c, k.GroupVersionKind()).Apply(ctx, client.UnstructuredConfiguration(obj), options...)
}

func (k kind[T]) remove(ctx context.Context, c *client.Client, obj client.Object) error {
	// With the version: the owner may have given the object up meanwhile. The retry knows.
	is := client.Preconditions(obj.GetUID(), obj.GetResourceVersion())
	return client.IgnoreNotFound(client.ForKind[T](c, k.GroupVersionKind()).Delete(ctx, client.ObjectKeyFromObject(obj), is))
}
