// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package object declares the interface for API objects, which the packages cache, client and
// handler export, and the name of one.
package object

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
