// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
)

// Complete sets what an API server itself sets in an object of a built-in kind that replaces
// live (nil: is new): phases, finalizers, addresses. Its writer does not own these fields.
func Complete(d *kinds.Definition, u, live *unstructured.Unstructured, free *Addresses) error {
	if !d.BuiltIn {
		return nil
	}
	switch d.GVR().GroupResource().String() {
	case "pods":
		if live == nil {
			return completePod(u)
		}
		return recompletePod(u, live)
	case "services":
		free.allocate(u, live)
		if errs := validateAddresses(u); len(errs) > 0 {
			return d.Invalid(u, errs)
		}
	case "namespaces":
		if live == nil {
			FoundNamespace(u)
		}
	case "persistentvolumeclaims":
		completeStorage(u, live, "kubernetes.io/pvc-protection")
	case "persistentvolumes":
		completeStorage(u, live, "kubernetes.io/pv-protection")
		if live == nil {
			jsonvalue.SetField(u, metav1.Now().UTC().Format("2006-01-02T15:04:05Z"), "status", "lastPhaseTransitionTime")
		}
	case "nodes":
		if live == nil {
			taints, _, _ := unstructured.NestedSlice(u.Object, "spec", "taints")
			jsonvalue.SetField(u, append(taints, map[string]any{"key": corev1.TaintNodeNotReady, "effect": "NoSchedule"}), "spec", "taints")
		}
	case "roles.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io":
		if rules, _ := u.Object["rules"].([]any); len(rules) == 0 {
			// The real server stores protobuf, which has no empty list.
			u.Object["rules"] = nil
		}
	case "jobs.batch":
		if live == nil {
			completeJob(u)
		}
	case "daemonsets.apps":
		completeDaemonSet(u, live)
	}
	return nil
}

func completeStorage(u, live *unstructured.Unstructured, finalizer string) {
	if live != nil {
		return
	}
	jsonvalue.SetField(u, "Pending", "status", "phase")
	for _, f := range u.GetFinalizers() {
		if f == finalizer {
			return
		}
	}
	u.SetFinalizers(append(u.GetFinalizers(), finalizer))
}

// completePod does what the admission of a new Pod does without priority classes and quotas.
func completePod(u *unstructured.Unstructured) error {
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, pod); err != nil {
		return err
	}
	setTolerations(u, pod)
	priority := map[string]int64{"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}[pod.Spec.PriorityClassName]
	jsonvalue.SetDefault(u, priority, "spec", "priority")
	jsonvalue.SetDefault(u, "PreemptLowerPriority", "spec", "preemptionPolicy")
	jsonvalue.SetField(u, map[string]any{"phase": "Pending", "qosClass": string(qosClass(pod))}, "status")
	return nil
}

// recompletePod keeps what the server has set in a Pod and the client of an update leaves out.
func recompletePod(u, live *unstructured.Unstructured) error {
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, pod); err != nil {
		return err
	}
	setTolerations(u, pod)
	for _, field := range []string{"priority", "preemptionPolicy"} {
		if has, ok, _ := unstructured.NestedFieldNoCopy(live.Object, "spec", field); ok {
			jsonvalue.SetDefault(u, has, "spec", field)
		}
	}
	return nil
}

// setTolerations adds the tolerations that every Pod has.
func setTolerations(u *unstructured.Unstructured, pod *corev1.Pod) {
	tolerations, _, _ := unstructured.NestedSlice(u.Object, "spec", "tolerations")
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if !tolerates(pod, taint) {
			tolerations = append(tolerations, map[string]any{
				"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": int64(300),
			})
		}
	}
	if len(tolerations) > 0 {
		jsonvalue.SetField(u, tolerations, "spec", "tolerations")
	}
}

// tolerates reports whether a Pod has a toleration for all effects of a taint, or for its eviction.
func tolerates(pod *corev1.Pod, taint string) bool {
	for _, t := range pod.Spec.Tolerations {
		if (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}

// qosClass is Guaranteed if every container has equal limits and requests of CPU and memory, and
// BestEffort if none has any.
func qosClass(pod *corev1.Pod) corev1.PodQOSClass {
	guaranteed, any := true, false
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for _, c := range containers {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
				any = any || !request.IsZero() || !limit.IsZero()
				guaranteed = guaranteed && !limit.IsZero() && request.Cmp(limit) == 0
			}
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// completeJob gives a Job the labels and the selector of its Pods, unless it selects them itself.
func completeJob(u *unstructured.Unstructured) {
	if manual, _, _ := unstructured.NestedBool(u.Object, "spec", "manualSelector"); manual {
		return
	}
	labels, _, _ := unstructured.NestedStringMap(u.Object, "spec", "template", "metadata", "labels")
	if labels == nil {
		labels = map[string]string{}
	}
	own := u.GetLabels()
	shared := len(own) == len(labels) // the Job has the labels of its template
	uid := string(u.GetUID())
	for key, value := range map[string]string{
		"controller-uid": uid, batchv1.ControllerUidLabel: uid, "job-name": u.GetName(), batchv1.JobNameLabel: u.GetName(),
	} {
		labels[key] = value
	}
	if shared {
		u.SetLabels(labels)
	}
	_ = unstructured.SetNestedStringMap(u.Object, labels, "spec", "template", "metadata", "labels")
	_ = unstructured.SetNestedStringMap(u.Object, map[string]string{batchv1.ControllerUidLabel: uid}, "spec", "selector", "matchLabels")
}

// completeDaemonSet counts the changes of a DaemonSet's template in an annotation.
func completeDaemonSet(u, live *unstructured.Unstructured) {
	count := int64(1)
	if live != nil {
		count, _ = strconv.ParseInt(live.GetAnnotations()[appsv1.DeprecatedTemplateGeneration], 10, 64)
		was, _, _ := unstructured.NestedFieldNoCopy(live.Object, "spec", "template")
		is, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "template")
		if !jsonvalue.Equal(was, is) {
			count++
		}
	}
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(count, 10)
	u.SetAnnotations(annotations)
}

// Addresses are the cluster IPs and node ports of Services.
type Addresses struct{ given int }

// allocate gives a Service its addresses and node ports. An update keeps those that it does
// not name. Addresses are unique, unless a client chose one.
func (a *Addresses) allocate(u, live *unstructured.Unstructured) {
	kind, _, _ := unstructured.NestedString(u.Object, "spec", "type")
	if kind == "ExternalName" {
		return
	}
	if live != nil {
		keepAllocated(u, live)
	}
	address, _, _ := unstructured.NestedString(u.Object, "spec", "clusterIP")
	if live != nil && address != jsonvalue.Object(live.Object, "spec")["clusterIP"] && jsonvalue.Equal(jsonvalue.Object(u.Object, "spec")["clusterIPs"], jsonvalue.Object(live.Object, "spec")["clusterIPs"]) {
		// The client changed the other one only.
		jsonvalue.SetField(u, []any{address}, "spec", "clusterIPs")
	}
	if address == "" {
		a.given++
		address = fmt.Sprintf("10.%d.%d.%d", a.given>>16, a.given>>8&0xff, a.given&0xff)
		jsonvalue.SetField(u, address, "spec", "clusterIP")
	}
	jsonvalue.SetDefault(u, []any{address}, "spec", "clusterIPs")
	selector, _, _ := unstructured.NestedMap(u.Object, "spec", "selector")
	if address == "None" && len(selector) == 0 {
		jsonvalue.SetDefault(u, []any{"IPv4", "IPv6"}, "spec", "ipFamilies")
		jsonvalue.SetDefault(u, "RequireDualStack", "spec", "ipFamilyPolicy")
	}
	jsonvalue.SetDefault(u, []any{"IPv4"}, "spec", "ipFamilies")
	jsonvalue.SetDefault(u, "SingleStack", "spec", "ipFamilyPolicy")
	if kind != "NodePort" && kind != "LoadBalancer" {
		return
	}
	ports, _, _ := unstructured.NestedSlice(u.Object, "spec", "ports")
	for _, p := range ports {
		if port, ok := p.(map[string]any); ok && port["nodePort"] == nil {
			a.given++
			port["nodePort"] = int64(30000 + a.given%2768)
		}
	}
	jsonvalue.SetField(u, ports, "spec", "ports")
}

// keepAllocated copies what was allocated from live to u, which does not name it.
func keepAllocated(u, live *unstructured.Unstructured) {
	for _, name := range []string{"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} {
		if value, ok, _ := unstructured.NestedFieldCopy(live.Object, "spec", name); ok {
			jsonvalue.SetDefault(u, value, "spec", name)
		}
	}
	was, _, _ := unstructured.NestedSlice(live.Object, "spec", "ports")
	is, _, _ := unstructured.NestedSlice(u.Object, "spec", "ports")
	for _, p := range is {
		port, _ := p.(map[string]any)
		for _, q := range was {
			if old, _ := q.(map[string]any); old["port"] == port["port"] && old["protocol"] == port["protocol"] && port["nodePort"] == nil && old["nodePort"] != nil {
				port["nodePort"] = old["nodePort"]
			}
		}
	}
	if len(is) > 0 {
		jsonvalue.SetField(u, is, "spec", "ports")
	}
}
