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

// +kubebuilder:rbac:groups=batch,resources=cronjobs,verbs=get;list;watch;create;patch;delete

// newGreetingCronJob returns the fields of the CronJob that the operator decides about.
func newGreetingCronJob(obj *v1alpha1.Greeting) *batchac.CronJobApplyConfiguration {
	return batchac.CronJob(obj.Name, obj.Namespace).
		WithSpec(batchac.CronJobSpec().
			WithSchedule("0 3 * * *").
			WithJobTemplate(batchac.JobTemplateSpec().
				WithSpec(batchac.JobSpec().
					WithTemplate(coreac.PodTemplateSpec().
						WithSpec(coreac.PodSpec().
							WithRestartPolicy(corev1.RestartPolicyNever).
							WithContainers(coreac.Container().
								WithName("main").
								WithImage("busybox:1.37").
								WithCommand("true")))))))
}
