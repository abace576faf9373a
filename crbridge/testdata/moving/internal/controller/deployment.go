// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	webappv1 "my.domain/guestbook/api/v1"
)

func labels(book *webappv1.Guestbook) map[string]string {
	return map[string]string{"guestbook": book.Name}
}

// setSpec sets what a Deployment has of its Guestbook.
func setSpec(d *appsv1.Deployment, book *webappv1.Guestbook, config string) {
	d.Spec.Replicas = &book.Spec.Replicas
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels(book)}
	d.Spec.Template.Labels = labels(book)
	pod := &d.Spec.Template.Spec
	if len(pod.Containers) == 0 {
		pod.Containers, pod.Volumes = make([]corev1.Container, 1), make([]corev1.Volume, 1)
	}
	c, v := &pod.Containers[0], &pod.Volumes[0]
	c.Name, c.Image = "server", "registry.k8s.io/e2e-test-images/nginx:1.15-4"
	c.VolumeMounts = []corev1.VolumeMount{{Name: "page", MountPath: "/usr/share/nginx/html"}}
	if v.Name = "page"; v.ConfigMap == nil {
		v.ConfigMap = &corev1.ConfigMapVolumeSource{}
	}
	v.ConfigMap.Name = config
}
