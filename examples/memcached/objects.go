// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"maps"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	v1beta1 "github.com/setpoint-dev/setpoint/examples/memcached/api/v1beta1"
)

// serviceMonitorKind is served only where the Prometheus operator is installed.
var serviceMonitorKind = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}

// desired returns the children that a Memcached should have.
func desired(mc *v1beta1.Memcached, secretHash string) []client.ApplyConfiguration {
	all := []client.ApplyConfiguration{children.Typed(deployment(mc, secretHash)), children.Typed(service(mc))}
	if mc.Spec.HighAvailability.PodDisruptionBudget.Enabled {
		all = append(all, children.Typed(disruptionBudget(mc)))
	}
	if mc.Spec.Security.NetworkPolicy.Enabled {
		all = append(all, children.Typed(networkPolicy(mc)))
	}
	if mc.Spec.Autoscaling.Enabled {
		all = append(all, children.Typed(autoscaler(mc)))
	}
	if mc.Spec.Monitoring.Enabled && mc.Spec.Monitoring.ServiceMonitor != nil {
		all = append(all, children.With(client.UnstructuredConfiguration(serviceMonitor(mc)), children.Optional()))
	}
	return all
}

// metadata is the metadata of all children.
func metadata(mc *v1beta1.Memcached) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: mc.Namespace, Name: mc.Name, Labels: labels(mc)}
}

// labels are on all children, and select the Pods.
func labels(mc *v1beta1.Memcached) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":       "memcached",
		"app.kubernetes.io/instance":   mc.Name,
		"app.kubernetes.io/managed-by": operatorName,
	}
}

type port struct {
	name   string
	number int32
}

// ports returns the open ports. The one for metrics is the exporter's.
func ports(mc *v1beta1.Memcached) []port {
	all := []port{{"memcached", 11211}}
	if mc.Spec.Security.TLS.Enabled {
		all = append(all, port{"memcached-tls", 11212})
	}
	if mc.Spec.Monitoring.Enabled {
		all = append(all, port{"metrics", 9150})
	}
	return all
}

func service(mc *v1beta1.Memcached) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metadata(mc), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: labels(mc)}}
	s.Annotations = mc.Spec.Service.Annotations
	for _, p := range ports(mc) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: p.name, Port: p.number, TargetPort: intstr.FromString(p.name), Protocol: corev1.ProtocolTCP,
		})
	}
	return s
}

func disruptionBudget(mc *v1beta1.Memcached) *policyv1.PodDisruptionBudget {
	limits := mc.Spec.HighAvailability.PodDisruptionBudget
	spec := policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels(mc)}}
	if limits.MinAvailable == nil && limits.MaxUnavailable != nil {
		spec.MaxUnavailable = limits.MaxUnavailable
	} else {
		spec.MinAvailable = cmp.Or(limits.MinAvailable, new(intstr.FromInt32(1)))
	}
	return &policyv1.PodDisruptionBudget{ObjectMeta: metadata(mc), Spec: spec}
}

func networkPolicy(mc *v1beta1.Memcached) *networkingv1.NetworkPolicy {
	rule := networkingv1.NetworkPolicyIngressRule{From: mc.Spec.Security.NetworkPolicy.AllowedSources}
	for _, p := range ports(mc) {
		rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{
			Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt32(p.number)),
		})
	}
	return &networkingv1.NetworkPolicy{ObjectMeta: metadata(mc), Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: labels(mc)},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{rule},
	}}
}

// autoscaler leaves the default of the metrics to the API server: 80 % of the processor time.
func autoscaler(mc *v1beta1.Memcached) *autoscalingv2.HorizontalPodAutoscaler {
	a := mc.Spec.Autoscaling
	return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metadata(mc), Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: mc.Name},
		MinReplicas:    a.MinReplicas, MaxReplicas: a.MaxReplicas, Metrics: a.Metrics,
		Behavior: cmp.Or(a.Behavior, &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(300))},
		}),
	}}
}

func serviceMonitor(mc *v1beta1.Memcached) *unstructured.Unstructured {
	m := mc.Spec.Monitoring.ServiceMonitor
	selector := map[string]any{}
	for k, v := range labels(mc) {
		selector[k] = v
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"selector":          map[string]any{"matchLabels": selector},
		"namespaceSelector": map[string]any{"matchNames": []any{mc.Namespace}},
		"endpoints": []any{map[string]any{
			"port": "metrics", "interval": cmp.Or(m.Interval, "30s"), "scrapeTimeout": cmp.Or(m.ScrapeTimeout, "10s"),
		}},
	}}}
	u.SetGroupVersionKind(serviceMonitorKind)
	u.SetNamespace(mc.Namespace)
	u.SetName(mc.Name)
	all := map[string]string{}
	maps.Copy(all, m.AdditionalLabels)
	maps.Copy(all, labels(mc))
	u.SetLabels(all)
	return u
}
