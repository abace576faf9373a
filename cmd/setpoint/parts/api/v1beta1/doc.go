// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

// Package v1beta1 is version v1beta1 of the API group demo.example.com.
// +kubebuilder:object:generate=true
// +groupName=demo.example.com
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version of the types in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: "demo.example.com", Version: "v1beta1"}

// AddToScheme adds the types of this package to s.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion,
		&Greeting{}, &GreetingList{},
	)
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
