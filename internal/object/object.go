// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package object declares the one interface for API objects. The packages cache, client and handler
// export it as their Object.
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
