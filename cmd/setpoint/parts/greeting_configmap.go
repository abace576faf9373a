// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;patch;delete

// newGreetingConfigMap returns the fields of the ConfigMap that the operator decides about.
func newGreetingConfigMap(obj *v1alpha1.Greeting) *coreac.ConfigMapApplyConfiguration {
	return coreac.ConfigMap(obj.Name+"-settings", obj.Namespace).
		WithData(map[string]string{"level": "info"})
}
