package main

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/manager"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// name is the name of the operator, its Lease and its field manager for server-side apply.
const name = "sample-operator"

// The permissions that every operator needs.
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=sample-operator-system,resources=leases,resourceNames=sample-operator,verbs=get;update;watch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=sample-operator-system,resources=leases,verbs=create

// newOperator returns the operator with all of its controllers.
func newOperator(cfg *rest.Config, o manager.Options) (*manager.Manager, error) {
	var err error
	if o.Scheme, err = newScheme(); err != nil {
		return nil, err
	}
	o.Name = name
	mgr := manager.New(cfg, o)
	err = errors.Join(
		addGreeting(mgr),
	)
	return mgr, err
}

// newScheme returns a scheme with the built-in kinds and the kinds of this operator.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(
		scheme.AddToScheme(s),
		v1alpha1.AddToScheme(s),
	)
}
