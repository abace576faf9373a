// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 is version v1beta1 of the API group memcached.c5c3.io. It has the JSON fields,
// defaults and limits of the API of c5c3/memcached-operator v0.4.0. The deep copies, the CRD and
// the role are generated from the types here and the markers in the controller. Run `go generate
// ./...` after a change.
// +kubebuilder:object:generate=true
// +groupName=memcached.c5c3.io
package v1beta1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object:headerFile=../../hack/boilerplate.go.txt crd:maxDescLen=0 rbac:roleName=memcached-operator paths=.;../.. output:crd:dir=../../config/crd output:rbac:dir=../../config/rbac

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version of the types in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: "memcached.c5c3.io", Version: "v1beta1"}

// AddToScheme adds the types of this package to s.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &Memcached{}, &MemcachedList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
