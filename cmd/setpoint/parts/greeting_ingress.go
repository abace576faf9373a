// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	networkingv1 "k8s.io/api/networking/v1"
	networkingac "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingresses,verbs=get;list;watch;create;patch;delete

// newGreetingIngress returns the fields of the Ingress that the operator decides about. Its backend
// is the Service of 'setpoint add child Service'.
func newGreetingIngress(obj *v1alpha1.Greeting) *networkingac.IngressApplyConfiguration {
	return networkingac.Ingress(obj.Name, obj.Namespace).
		WithSpec(networkingac.IngressSpec().
			WithRules(networkingac.IngressRule().
				WithHost(obj.Name + ".example.org").
				WithHTTP(networkingac.HTTPIngressRuleValue().
					WithPaths(networkingac.HTTPIngressPath().
						WithPath("/").
						WithPathType(networkingv1.PathTypePrefix).
						WithBackend(networkingac.IngressBackend().
							WithService(networkingac.IngressServiceBackend().
								WithName(obj.Name).
								WithPort(networkingac.ServiceBackendPort().WithName("http"))))))))
}
