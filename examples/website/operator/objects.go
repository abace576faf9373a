// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
)

// This file defines the desired state of a Website in the cluster, as pure functions of its spec.
// The operator owns only the fields set here. Other fields, set by users or webhooks, stay.

const (
	image     = "busybox:1.37"
	port      = 8080
	directory = "/www"
	page      = "index.html"
	volume    = "content"
	user      = 65532

	// With hashAnnotation on the pods, a new page causes a rollout.
	hashAnnotation = "web.example.com/content-hash"
)

// labels are on every object of the site.
func labels(site *v1.Website) map[string]string {
	return map[string]string{
		"app.kubernetes.io/managed-by": Name,
		"app.kubernetes.io/name":       "website",
		"app.kubernetes.io/instance":   site.Name,
	}
}

// contentName is the name of the ConfigMap with the page. The suffix prevents a conflict with the
// index for any site name.
func contentName(site *v1.Website) string { return site.Name + "-content" }

func configMap(site *v1.Website) *coreac.ConfigMapApplyConfiguration {
	return coreac.ConfigMap(contentName(site), site.Namespace).
		WithLabels(labels(site)).
		WithData(map[string]string{page: site.Spec.Page.Content})
}

func service(site *v1.Website) *coreac.ServiceApplyConfiguration {
	return coreac.Service(site.Name, site.Namespace).
		WithLabels(labels(site)).
		WithSpec(coreac.ServiceSpec().
			WithSelector(labels(site)).
			WithPorts(coreac.ServicePort().
				WithName("http").
				WithProtocol(corev1.ProtocolTCP).
				WithPort(80).
				WithTargetPort(intstr.FromString("http"))))
}

func deployment(site *v1.Website) *appsac.DeploymentApplyConfiguration {
	return appsac.Deployment(site.Name, site.Namespace).
		WithLabels(labels(site)).
		WithSpec(appsac.DeploymentSpec().
			WithReplicas(replicas(site)).
			WithSelector(metaac.LabelSelector().WithMatchLabels(labels(site))).
			WithTemplate(podTemplate(site)))
}

func podTemplate(site *v1.Website) *coreac.PodTemplateSpecApplyConfiguration {
	return coreac.PodTemplateSpec().
		WithLabels(labels(site)).
		WithAnnotations(map[string]string{hashAnnotation: hash(site.Spec.Page.Content)}).
		WithSpec(coreac.PodSpec().
			WithAutomountServiceAccountToken(false).
			WithSecurityContext(coreac.PodSecurityContext().
				WithRunAsNonRoot(true).
				WithRunAsUser(user).
				WithSeccompProfile(coreac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
			WithContainers(webServer()).
			WithVolumes(coreac.Volume().
				WithName(volume).
				WithConfigMap(coreac.ConfigMapVolumeSource().WithName(contentName(site)))))
}

func webServer() *coreac.ContainerApplyConfiguration {
	return coreac.Container().
		WithName("server").
		WithImage(image).
		WithCommand("httpd", "-f", "-p", strconv.Itoa(port), "-h", directory).
		WithPorts(coreac.ContainerPort().
			WithName("http").
			WithProtocol(corev1.ProtocolTCP).
			WithContainerPort(port)).
		WithReadinessProbe(coreac.Probe().
			WithHTTPGet(coreac.HTTPGetAction().WithPath("/" + page).WithPort(intstr.FromString("http")))).
		WithSecurityContext(coreac.SecurityContext().
			WithAllowPrivilegeEscalation(false).
			WithReadOnlyRootFilesystem(true).
			WithCapabilities(coreac.Capabilities().WithDrop("ALL"))).
		WithVolumeMounts(coreac.VolumeMount().
			WithName(volume).
			WithMountPath(directory).
			WithReadOnly(true))
}

// replicas is the requested number of servers. The API server sets the default, but a site from
// another source may lack it.
func replicas(site *v1.Website) int32 {
	if site.Spec.Replicas == nil {
		return 1
	}
	return *site.Spec.Replicas
}

func hash(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:8])
}
