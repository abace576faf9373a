// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1 is version v1 of the API group batch.tutorial.kubebuilder.io. The deep copies, the CRD
// and the role are generated from the types here and the markers in the controller. Run `go
// generate ./...` after a change.
// +kubebuilder:object:generate=true
// +groupName=batch.tutorial.kubebuilder.io
package v1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object:headerFile=../../hack/boilerplate.go.txt crd:maxDescLen=0,generateEmbeddedObjectMeta=true rbac:roleName=cronjob-controller paths=.;../.. output:crd:dir=../../config/crd output:rbac:dir=../../config/rbac

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version of the types in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: "batch.tutorial.kubebuilder.io", Version: "v1"}

// AddToScheme adds the types of this package to s.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &CronJob{}, &CronJobList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
