// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete

// newGreetingDeployment returns the fields of the Deployment that the operator decides about.
func newGreetingDeployment(obj *v1alpha1.Greeting) *appsac.DeploymentApplyConfiguration {
	labels := map[string]string{"app.kubernetes.io/name": "greeting", "app.kubernetes.io/instance": obj.Name}
	return appsac.Deployment(obj.Name, obj.Namespace).
		WithLabels(labels).
		WithSpec(appsac.DeploymentSpec().
			WithSelector(metaac.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(coreac.PodTemplateSpec().
				WithLabels(labels).
				WithSpec(coreac.PodSpec().
					WithContainers(coreac.Container().
						WithName("main").
						WithImage("registry.k8s.io/pause:3.10")))))
}
