// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
	"github.com/setpoint-dev/setpoint/examples/website/api/v1alpha1"
)

// hostAnnotation keeps spec.host in v1alpha1, which has no such field.
const hostAnnotation = "web.example.com/host"

func fromV1alpha1(from *v1alpha1.Website, to *v1.Website) error {
	to.Spec.Replicas = from.Spec.Replicas
	to.Spec.Page.Content = from.Spec.Content
	to.Spec.Host = to.Annotations[hostAnnotation]
	delete(to.Annotations, hostAnnotation)
	to.Status = v1.WebsiteStatus(from.Status)
	return nil
}

func toV1alpha1(from *v1.Website, to *v1alpha1.Website) error {
	to.Spec.Replicas = from.Spec.Replicas
	to.Spec.Content = from.Spec.Page.Content
	if from.Spec.Host != "" {
		metav1.SetMetaDataAnnotation(&to.ObjectMeta, hostAnnotation, from.Spec.Host)
	}
	to.Status = v1alpha1.WebsiteStatus(from.Status)
	return nil
}
