// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	"k8s.io/apimachinery/pkg/util/intstr"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete

// newGreetingService returns the fields of the Service that the operator decides about. Its
// selector has the labels of the Pods of 'setpoint add child Deployment'.
func newGreetingService(obj *v1alpha1.Greeting) *coreac.ServiceApplyConfiguration {
	labels := map[string]string{"app.kubernetes.io/name": "greeting", "app.kubernetes.io/instance": obj.Name}
	return coreac.Service(obj.Name, obj.Namespace).
		WithLabels(labels).
		WithSpec(coreac.ServiceSpec().
			WithSelector(labels).
			WithPorts(coreac.ServicePort().
				WithName("http").
				WithPort(80).
				WithTargetPort(intstr.FromInt32(8080))))
}
