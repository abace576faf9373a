// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// defaultPod sets the defaults of a Pod. Some of them do not apply to a template.
func defaultPod(o *corev1.Pod) {
	defaultPodSpec(&o.Spec)
	if o.Status.PodIP != "" && len(o.Status.PodIPs) == 0 {
		o.Status.PodIPs = []corev1.PodIP{{IP: o.Status.PodIP}}
	}
	pointed(&o.Spec.EnableServiceLinks, true)
	for _, containers := range [][]corev1.Container{o.Spec.Containers, o.Spec.InitContainers} {
		for i := range containers {
			requestLimits(&containers[i].Resources)
			for j := range containers[i].Ports {
				if p := &containers[i].Ports[j]; o.Spec.HostNetwork {
					initial(&p.HostPort, p.ContainerPort)
				}
			}
		}
	}
}

// requestLimits requests the limit of a resource for which nothing is requested.
func requestLimits(r *corev1.ResourceRequirements) {
	if r.Limits != nil && r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			r.Requests[name] = limit
		}
	}
}

// defaultPodSpec sets the defaults of a Pod's spec and of a template's.
func defaultPodSpec(s *corev1.PodSpec) {
	initial(&s.DNSPolicy, corev1.DNSClusterFirst)
	initial(&s.RestartPolicy, corev1.RestartPolicyAlways)
	initial(&s.SchedulerName, corev1.DefaultSchedulerName)
	pointed(&s.SecurityContext, corev1.PodSecurityContext{})
	pointed(&s.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	initial(&s.ServiceAccountName, s.DeprecatedServiceAccount)
	s.DeprecatedServiceAccount = s.ServiceAccountName
	for i := range s.Volumes {
		defaultVolume(&s.Volumes[i])
	}
	for i := range s.Containers {
		defaultContainer(&s.Containers[i])
	}
	for i := range s.InitContainers {
		defaultContainer(&s.InitContainers[i])
	}
	for i := range s.EphemeralContainers {
		c := corev1.Container(s.EphemeralContainers[i].EphemeralContainerCommon)
		defaultContainer(&c)
		s.EphemeralContainers[i].EphemeralContainerCommon = corev1.EphemeralContainerCommon(c)
	}
	roundUp(s.Overhead)
}

func defaultContainer(c *corev1.Container) {
	initial(&c.ImagePullPolicy, pullPolicy(c.Image))
	initial(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	initial(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		initial(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			initial(&from.FieldRef.APIVersion, "v1")
		}
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(p)
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
}

// pullPolicy is Always for images with the tag latest or without tag and digest.
func pullPolicy(image string) corev1.PullPolicy {
	name, _, digest := strings.Cut(image, "@")
	_, tag, tagged := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if tag == "latest" || !tagged && !digest {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	initial(&p.TimeoutSeconds, 1)
	initial(&p.PeriodSeconds, 10)
	initial(&p.SuccessThreshold, 1)
	initial(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		pointed(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(g *corev1.HTTPGetAction) {
	if g != nil {
		initial(&g.Path, "/")
		initial(&g.Scheme, corev1.URISchemeHTTP)
	}
}

// roundUp rounds quantities to thousandths.
func roundUp(list corev1.ResourceList) {
	for name, q := range list {
		q.RoundUp(resource.Milli)
		list[name] = q
	}
}

const fileMode = 0o644 // of files in volumes

func defaultVolume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.Secret != nil {
		pointed(&v.Secret.DefaultMode, fileMode)
	}
	if v.ConfigMap != nil {
		pointed(&v.ConfigMap.DefaultMode, fileMode)
	}
	if v.HostPath != nil {
		pointed(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.DownwardAPI != nil {
		pointed(&v.DownwardAPI.DefaultMode, fileMode)
		defaultDownward(v.DownwardAPI.Items)
	}
	if v.Image != nil {
		initial(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	}
	if v.ISCSI != nil {
		initial(&v.ISCSI.ISCSIInterface, "default")
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		pointed(&v.Ephemeral.VolumeClaimTemplate.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	}
	if v.Projected != nil {
		pointed(&v.Projected.DefaultMode, fileMode)
		for _, source := range v.Projected.Sources {
			if source.DownwardAPI != nil {
				defaultDownward(source.DownwardAPI.Items)
			}
			if token := source.ServiceAccountToken; token != nil {
				pointed(&token.ExpirationSeconds, 3600)
			}
		}
	}
}

func defaultDownward(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		if items[i].FieldRef != nil {
			initial(&items[i].FieldRef.APIVersion, "v1")
		}
	}
}

func defaultNamespace(o *corev1.Namespace) {
	initial(&o.Status.Phase, corev1.NamespaceActive)
	if o.Name == "" {
		return
	}
	if o.Labels == nil {
		o.Labels = map[string]string{}
	}
	o.Labels[corev1.LabelMetadataName] = o.Name
}

// defaultSecret moves stringData to data.
func defaultSecret(o *corev1.Secret) {
	initial(&o.Type, corev1.SecretTypeOpaque)
	for name, value := range o.StringData {
		if o.Data == nil {
			o.Data = map[string][]byte{}
		}
		o.Data[name] = []byte(value)
	}
	o.StringData = nil
}

func defaultService(o *corev1.Service) {
	s := &o.Spec
	initial(&s.SessionAffinity, corev1.ServiceAffinityNone)
	switch s.SessionAffinity {
	case corev1.ServiceAffinityNone:
		s.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		pointed(&s.SessionAffinityConfig, corev1.SessionAffinityConfig{})
		pointed(&s.SessionAffinityConfig.ClientIP, corev1.ClientIPConfig{})
		pointed(&s.SessionAffinityConfig.ClientIP.TimeoutSeconds, corev1.DefaultClientIPServiceAffinitySeconds)
	}
	initial(&s.Type, corev1.ServiceTypeClusterIP)
	for i := range s.Ports {
		p := &s.Ports[i]
		initial(&p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	reachable := s.Type == corev1.ServiceTypeNodePort || s.Type == corev1.ServiceTypeLoadBalancer
	if reachable || s.Type == corev1.ServiceTypeClusterIP && len(s.ExternalIPs) > 0 {
		initial(&s.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if reachable || s.Type == corev1.ServiceTypeClusterIP {
		pointed(&s.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if s.Type == corev1.ServiceTypeLoadBalancer {
		pointed(&s.AllocateLoadBalancerNodePorts, true)
		for i := range o.Status.LoadBalancer.Ingress {
			if ingress := &o.Status.LoadBalancer.Ingress[i]; ingress.IP != "" {
				pointed(&ingress.IPMode, corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}
