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

// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch;delete

// newGreetingStatefulSet returns the fields of the StatefulSet that the operator decides about.
func newGreetingStatefulSet(obj *v1alpha1.Greeting) *appsac.StatefulSetApplyConfiguration {
	labels := map[string]string{"app.kubernetes.io/name": "greeting", "app.kubernetes.io/instance": obj.Name}
	return appsac.StatefulSet(obj.Name, obj.Namespace).
		WithLabels(labels).
		WithSpec(appsac.StatefulSetSpec().
			WithServiceName(obj.Name).
			WithSelector(metaac.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(coreac.PodTemplateSpec().
				WithLabels(labels).
				WithSpec(coreac.PodSpec().
					WithContainers(coreac.Container().
						WithName("main").
						WithImage("registry.k8s.io/pause:3.10")))))
}
