// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is version v1alpha1 of the API group web.example.com. The deep copies, apply
// configurations, CRD and roles are generated from the types and markers here and in package
// operator. Run `go generate ./...` after a change.
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package="../../applyconfiguration"
// +groupName=web.example.com
package v1alpha1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object:headerFile=../../hack/boilerplate.go.txt applyconfiguration:headerFile=../../hack/boilerplate.go.txt crd rbac:roleName=website-operator paths=.;../../operator output:crd:dir=../../config/crd output:rbac:dir=../../config/rbac

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
