// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1beta1 "github.com/setpoint-dev/setpoint/examples/memcached/api/v1beta1"
)

const (
	// On the Memcached and its Pods: a change replaces the Pods.
	restartAnnotation = "memcached.c5c3.io/restart-trigger"
	// On the Pods: the hash of the Secrets.
	hashAnnotation = "memcached.c5c3.io/secret-hash" //nolint:gosec // a name

	saslPath = "/etc/memcached/sasl"
	tlsPath  = "/etc/memcached/tls"
)

// deployment has no replicas under an autoscaler: the field is the autoscaler's.
func deployment(mc *v1beta1.Memcached, secretHash string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metadata(mc), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels(mc)},
		Strategy: appsv1.DeploymentStrategy{
			Type:          appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0))},
		},
		Template: corev1.PodTemplateSpec{Spec: podSpec(mc)},
	}}
	if !mc.Spec.Autoscaling.Enabled {
		d.Spec.Replicas = cmp.Or(mc.Spec.Replicas, new(int32(1)))
	}
	if i := strings.LastIndex(image(mc), ":"); i >= 0 && !strings.Contains(image(mc), "@") {
		d.Labels["app.kubernetes.io/version"] = image(mc)[i+1:]
	}
	annotations := map[string]string{hashAnnotation: secretHash, restartAnnotation: mc.Annotations[restartAnnotation]}
	maps.DeleteFunc(annotations, func(_, value string) bool { return value == "" })
	d.Spec.Template.ObjectMeta = metav1.ObjectMeta{Labels: d.Labels, Annotations: annotations}
	return d
}

func image(mc *v1beta1.Memcached) string { return cmp.Or(mc.Spec.Image, "memcached:1.6") }

func podSpec(mc *v1beta1.Memcached) corev1.PodSpec {
	available, security := mc.Spec.HighAvailability, mc.Spec.Security
	main := corev1.Container{
		Name: "memcached", Image: image(mc), Args: args(mc), Resources: mc.Spec.Resources,
		SecurityContext: security.ContainerSecurityContext,
		LivenessProbe:   probe(10), ReadinessProbe: probe(5),
	}
	spec := corev1.PodSpec{
		Affinity: affinity(mc), TopologySpreadConstraints: available.TopologySpreadConstraints, SecurityContext: security.PodSecurityContext,
	}
	if s := available.GracefulShutdown; s.Enabled {
		delay := fmt.Sprint(cmp.Or(s.PreStopDelaySeconds, 10))
		main.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sleep", delay}}}}
		spec.TerminationGracePeriodSeconds = new(cmp.Or(s.TerminationGracePeriodSeconds, 30))
	}
	mount := func(name, path, secret string, keys ...string) {
		var items []corev1.KeyToPath
		for _, key := range keys {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: secret, Items: items},
		}})
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true})
	}
	if s := security.SASL; s.Enabled {
		mount("sasl-credentials", saslPath, s.CredentialsSecretRef.Name, "password-file")
	}
	if s := security.TLS; s.Enabled {
		keys := []string{"tls.crt", "tls.key"}
		if s.EnableClientCert {
			keys = append(keys, "ca.crt")
		}
		mount("tls-certificates", tlsPath, s.CertificateSecretRef.Name, keys...)
	}
	exporter := corev1.Container{
		Name: "exporter", Image: cmp.Or(mc.Spec.Monitoring.ExporterImage, "prom/memcached-exporter:v0.15.4"),
		Resources: mc.Spec.Monitoring.ExporterResources, SecurityContext: security.ContainerSecurityContext,
	}
	for _, p := range ports(mc) {
		of := &main
		if p.name == "metrics" {
			of = &exporter
		}
		of.Ports = append(of.Ports, corev1.ContainerPort{Name: p.name, ContainerPort: p.number, Protocol: corev1.ProtocolTCP})
	}
	if spec.Containers = []corev1.Container{main}; mc.Spec.Monitoring.Enabled {
		spec.Containers = append(spec.Containers, exporter)
	}
	return spec
}

func args(mc *v1beta1.Memcached) []string {
	m, security := mc.Spec.Memcached, mc.Spec.Security
	all := []string{
		"-m", fmt.Sprint(cmp.Or(m.MaxMemoryMB, 64)), "-c", fmt.Sprint(cmp.Or(m.MaxConnections, 1024)),
		"-t", fmt.Sprint(cmp.Or(m.Threads, 4)), "-I", cmp.Or(m.MaxItemSize, "1m"),
	}
	if m.Verbosity > 0 {
		all = append(all, "-"+strings.Repeat("v", int(m.Verbosity)))
	}
	if security.SASL.Enabled {
		all = append(all, "-Y", saslPath+"/password-file")
	}
	if security.TLS.Enabled {
		all = append(all, "-Z", "-o", "ssl_chain_cert="+tlsPath+"/tls.crt", "-o", "ssl_key="+tlsPath+"/tls.key")
		if security.TLS.EnableClientCert {
			all = append(all, "-o", "ssl_ca_cert="+tlsPath+"/ca.crt")
		}
	}
	return append(all, m.ExtraArgs...)
}

func probe(seconds int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("memcached")}},
		InitialDelaySeconds: seconds, PeriodSeconds: seconds,
	}
}

func affinity(mc *v1beta1.Memcached) *corev1.Affinity {
	others := labels(mc)
	delete(others, "app.kubernetes.io/managed-by")
	term := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: others}}
	switch mc.Spec.HighAvailability.AntiAffinityPreset {
	case v1beta1.AntiAffinitySoft:
		return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 100, PodAffinityTerm: term}},
		}}
	case v1beta1.AntiAffinityHard:
		return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term},
		}}
	}
	return nil
}
