// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1 is version v1 of the API group web.example.com, which the operator uses. The deep
// copies, apply configurations, CRD and roles are generated from the types and markers here, in
// v1alpha1 and in package operator. The webhook configurations are generated from its functions.
// Run `go generate ./...` after a change.
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package="../../applyconfiguration"
// +groupName=web.example.com
package v1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object:headerFile=../../hack/boilerplate.go.txt applyconfiguration:headerFile=../../hack/boilerplate.go.txt crd rbac:roleName=website-operator paths=.;../v1alpha1;../../operator output:crd:dir=../../config/crd output:rbac:dir=../../config/rbac
//go:generate go run ../../hack/webhooks ../../config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version of the types in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: "web.example.com", Version: "v1"}

// AddToScheme adds the types of this package to s.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &Website{}, &WebsiteList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
