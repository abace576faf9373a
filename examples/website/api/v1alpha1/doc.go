// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the first version of the API group web.example.com. The API server still
// serves it, and calls the operator to convert it to v1 and back.
// +kubebuilder:object:generate=true
// +groupName=web.example.com
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version of the types in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: "web.example.com", Version: "v1alpha1"}

// AddToScheme adds the types of this package to s.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &Website{}, &WebsiteList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
