// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	corev1 "k8s.io/api/core/v1"
	batchac "k8s.io/client-go/applyconfigurations/batch/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete

// newGreetingJob returns the fields of the Job that the operator decides about. The template of a
// Job cannot change: to run it again, change its name, or use children.With and children.Recreate.
func newGreetingJob(obj *v1alpha1.Greeting) *batchac.JobApplyConfiguration {
	return batchac.Job(obj.Name, obj.Namespace).
		WithSpec(batchac.JobSpec().
			WithTemplate(coreac.PodTemplateSpec().
				WithSpec(coreac.PodSpec().
					WithRestartPolicy(corev1.RestartPolicyNever).
					WithContainers(coreac.Container().
						WithName("main").
						WithImage("busybox:1.37").
						WithCommand("true")))))
}
