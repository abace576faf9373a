// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch;delete

// newGreetingSecret returns the fields of the Secret that the operator decides about. The operator
// may read all Secrets then, and keeps them in its cache.
func newGreetingSecret(obj *v1alpha1.Greeting) *coreac.SecretApplyConfiguration {
	return coreac.Secret(obj.Name, obj.Namespace).
		WithData(map[string][]byte{"user": []byte("admin")})
}
