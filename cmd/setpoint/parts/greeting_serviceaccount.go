// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=get;list;watch;create;patch;delete

// newGreetingServiceAccount returns the fields of the ServiceAccount that the operator decides
// about.
func newGreetingServiceAccount(obj *v1alpha1.Greeting) *coreac.ServiceAccountApplyConfiguration {
	return coreac.ServiceAccount(obj.Name, obj.Namespace).
		WithAutomountServiceAccountToken(false)
}
