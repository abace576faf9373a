// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/object"
)

// Object is a pointer to an API type, such as *appsv1.Deployment.
type Object = object.Object

func newObject[T Object]() T {
	return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T) //nolint:forcetypeassert // T is a pointer type, seen by kindOf
}

// ObjectKeyFromObject returns the namespace and name of an object.
func ObjectKeyFromObject(obj metav1.Object) types.NamespacedName {
	return object.Key(obj)
}

type form uint8

const (
	typed          form = iota // the Go type that the scheme has for the kind
	inUnstructured             // *unstructured.Unstructured
	inMetadata                 // *metav1.PartialObjectMetadata
)

func formOf[T Object]() form {
	switch any(*new(T)).(type) {
	case *unstructured.Unstructured:
		return inUnstructured
	case *metav1.PartialObjectMetadata:
		return inMetadata
	}
	return typed
}
