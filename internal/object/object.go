// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package object declares the interface for API objects, which the packages cache, client and
// handler export. It has their keys, names and kinds, and compares their versions.
package object

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is a pointer to an API type, such as *appsv1.Deployment.
type Object interface {
	metav1.Object
	runtime.Object
}

// Key returns the namespace and name of an object.
func Key(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Name returns a key as client-go's stores and our messages have it: namespace/name, or the name
// of a cluster-scoped object.
func Name(key types.NamespacedName) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.String()
}

// Kinds returns the kinds that a scheme has for the type of obj. There is at least one.
func Kinds(scheme *runtime.Scheme, obj runtime.Object) ([]schema.GroupVersionKind, error) {
	kinds, _, err := scheme.ObjectKinds(obj)
	if err != nil {
		return nil, fmt.Errorf("the scheme does not know the type; add its package with AddToScheme: %w", err)
	}
	return kinds, nil
}
