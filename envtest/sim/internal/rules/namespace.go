// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// FoundNamespace gives a new namespace what the real server gives it.
func FoundNamespace(u *unstructured.Unstructured) {
	u.Object["status"] = map[string]any{"phase": string(corev1.NamespaceActive)}
	finalizers, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "finalizers")
	if !slices.Contains(finalizers, string(corev1.FinalizerKubernetes)) {
		SetSpecFinalizers(u, append(finalizers, string(corev1.FinalizerKubernetes)))
	}
	labelNamespace(u)
}

// labelNamespace sets the label with the name, as every write of a namespace does.
func labelNamespace(u *unstructured.Unstructured) {
	labels := u.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[corev1.LabelMetadataName] = u.GetName()
	u.SetLabels(labels)
}

// SpecFinalizers returns the finalizers in the spec of a namespace.
func SpecFinalizers(u *unstructured.Unstructured) []string {
	finalizers, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "finalizers")
	return finalizers
}

// SetSpecFinalizers sets the finalizers in the spec of a namespace.
func SetSpecFinalizers(u *unstructured.Unstructured, finalizers []string) {
	spec, _ := u.Object["spec"].(map[string]any)
	if spec = maps.Clone(spec); spec == nil {
		spec = map[string]any{}
	}
	if delete(spec, "finalizers"); len(finalizers) > 0 {
		list := make([]any, len(finalizers))
		for i, f := range finalizers {
			list[i] = f
		}
		spec["finalizers"] = list
	}
	u.Object["spec"] = spec
}

// NamespacePhase returns the phase of a namespace, or nothing.
func NamespacePhase(namespace *unstructured.Unstructured) corev1.NamespacePhase {
	p, _, _ := unstructured.NestedString(namespace.Object, "status", "phase")
	return corev1.NamespacePhase(p)
}
