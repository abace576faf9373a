// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;create;patch;delete

// newGreetingPersistentVolumeClaim returns the fields of the PersistentVolumeClaim that the
// operator decides about. Of these, only the size can change, and only grow.
func newGreetingPersistentVolumeClaim(obj *v1alpha1.Greeting) *coreac.PersistentVolumeClaimApplyConfiguration {
	return coreac.PersistentVolumeClaim(obj.Name, obj.Namespace).
		WithSpec(coreac.PersistentVolumeClaimSpec().
			WithAccessModes(corev1.ReadWriteOnce).
			WithResources(coreac.VolumeResourceRequirements().
				WithRequests(corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")})))
}
