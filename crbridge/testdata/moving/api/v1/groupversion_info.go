// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1 has the kind Guestbook.
// +kubebuilder:object:generate=true
// +groupName=webapp.my.domain
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of the kinds.
	GroupVersion = schema.GroupVersion{Group: "webapp.my.domain", Version: "v1"}

	// SchemeBuilder registers them.
	SchemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
		s.AddKnownTypes(GroupVersion, &Guestbook{}, &GuestbookList{})
		metav1.AddToGroupVersion(s, GroupVersion)
		return nil
	})

	// AddToScheme adds them to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)
