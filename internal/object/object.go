// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package object declares the interface for API objects, which the packages cache, client and
// handler export.
package object

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is a pointer to an API type, such as *appsv1.Deployment.
type Object interface {
	metav1.Object
	runtime.Object
}
