// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	networkingv1 "k8s.io/api/networking/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingac "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch;delete

// newGreetingNetworkPolicy returns the fields of the NetworkPolicy that the operator decides about.
// Only Pods of the same namespace reach the Pods of 'setpoint add child Deployment'.
func newGreetingNetworkPolicy(obj *v1alpha1.Greeting) *networkingac.NetworkPolicyApplyConfiguration {
	labels := map[string]string{"app.kubernetes.io/name": "greeting", "app.kubernetes.io/instance": obj.Name}
	return networkingac.NetworkPolicy(obj.Name, obj.Namespace).
		WithSpec(networkingac.NetworkPolicySpec().
			WithPodSelector(metaac.LabelSelector().WithMatchLabels(labels)).
			WithPolicyTypes(networkingv1.PolicyTypeIngress).
			WithIngress(networkingac.NetworkPolicyIngressRule().
				WithFrom(networkingac.NetworkPolicyPeer().WithPodSelector(metaac.LabelSelector()))))
}
