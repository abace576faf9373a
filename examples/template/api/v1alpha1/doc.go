// Package v1alpha1 is version v1alpha1 of the API group demo.example.com. Run `make generate` after
// a change: the deep copies, the CRD and the roles are generated from the types and markers here,
// and from the markers in the package main.
// +kubebuilder:object:generate=true
// +groupName=demo.example.com
package v1alpha1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object crd rbac:roleName=sample-operator paths=../...;../.. output:crd:dir=../../config/crd output:rbac:dir=../../config/rbac

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version of the types in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: "demo.example.com", Version: "v1alpha1"}

// ConditionReady is True when all is as desired. Else its message has the error.
const ConditionReady = "Ready"

// AddToScheme adds the types of this package to s.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion,
		&Greeting{}, &GreetingList{},
	)
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
