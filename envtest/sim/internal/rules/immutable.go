// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
)

// validateChange checks what an update of a built-in kind may not change.
func validateChange(kind string, u, live *unstructured.Unstructured) field.ErrorList {
	switch kind {
	case "ConfigMap":
		return validateImmutable(u, live, "data", "binaryData")
	case "Secret":
		return append(immutable(u, live, "type"), validateImmutable(u, live, "data")...)
	case "Deployment", "ReplicaSet", "DaemonSet":
		return immutable(u, live, "spec", "selector")
	case "Job":
		return append(immutable(u, live, "spec", "selector"), immutable(u, live, "spec", "template")...)
	case "StatefulSet":
		return validateStatefulSetChange(u, live)
	case "Pod":
		return validatePodChange(u, live)
	case "Service":
		return validateServiceChange(u, live)
	case "Role", "ClusterRole":
		return nil
	case "RoleBinding", "ClusterRoleBinding":
		if was, is := jsonvalue.Object(live.Object, "roleRef"), jsonvalue.Object(u.Object, "roleRef"); !jsonvalue.Equal(was, is) {
			return field.ErrorList{field.Invalid(field.NewPath("roleRef"), is, "cannot change roleRef")}
		}
	}
	return nil
}

func immutable(u, live *unstructured.Unstructured, fields ...string) field.ErrorList {
	is, _, _ := unstructured.NestedFieldNoCopy(u.Object, fields...)
	was, _, _ := unstructured.NestedFieldNoCopy(live.Object, fields...)
	if jsonvalue.Equal(is, was) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath(fields[0], fields[1:]...), is, validation.FieldImmutableErrorMsg)}
}

// validateImmutable checks the fields of an object with "immutable: true".
func validateImmutable(u, live *unstructured.Unstructured, fields ...string) field.ErrorList {
	const message = "field is immutable when `immutable` is set"
	var errs field.ErrorList
	if live.Object["immutable"] != true {
		return nil
	}
	if u.Object["immutable"] != true {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), message))
	}
	for _, f := range fields {
		if !jsonvalue.Equal(u.Object[f], live.Object[f]) {
			errs = append(errs, field.Forbidden(field.NewPath(f), message))
		}
	}
	return errs
}

// validateServiceChange checks that a Service keeps its addresses.
func validateServiceChange(u, live *unstructured.Unstructured) field.ErrorList {
	external := string(corev1.ServiceTypeExternalName)
	if jsonvalue.Object(u.Object, "spec")["type"] == external || jsonvalue.Object(live.Object, "spec")["type"] == external || headless(u) && headless(live) {
		return nil
	}
	is, _ := jsonvalue.Object(u.Object, "spec")["clusterIPs"].([]any)
	was, _ := jsonvalue.Object(live.Object, "spec")["clusterIPs"].([]any)
	var errs field.ErrorList
	for i := range min(len(is), len(was)) {
		if is[i] != was[i] {
			errs = append(errs, field.Invalid(field.NewPath("spec", "clusterIPs").Index(i), is, "may not change once set"))
		}
	}
	return errs
}

// validatePodChange allows changes of images, deadlines and tolerations only. The real server's
// message ends with a diff of the rest.
func validatePodChange(u, live *unstructured.Unstructured) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []string{"containers", "initContainers"} {
		is, _ := jsonvalue.Object(u.Object, "spec")[f].([]any)
		was, _ := jsonvalue.Object(live.Object, "spec")[f].([]any)
		if len(is) != len(was) {
			return append(errs, field.Forbidden(field.NewPath("spec", f), "pod updates may not add or remove containers"))
		}
		for i, c := range is {
			c, _ := c.(map[string]any)
			errs = append(errs, validateImage(c, field.NewPath("spec", f).Index(i))...)
		}
	}
	if jsonvalue.Equal(fixedPodSpec(u), fixedPodSpec(live)) {
		return errs
	}
	return append(errs, field.Forbidden(field.NewPath("spec"), "pod updates may not change fields other than "+
		"`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"+
		"`spec.tolerations` (only additions to existing tolerations),"+
		"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"))
}

// fixedPodSpec returns a Pod's spec without the fields that may change.
func fixedPodSpec(pod *unstructured.Unstructured) map[string]any {
	spec := runtime.DeepCopyJSON(jsonvalue.Object(pod.Object, "spec"))
	for _, f := range []string{"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"} {
		delete(spec, f)
	}
	for _, f := range []string{"containers", "initContainers"} {
		containers, _ := spec[f].([]any)
		for _, c := range containers {
			if c, ok := c.(map[string]any); ok {
				delete(c, "image")
			}
		}
	}
	return spec
}

func validateStatefulSetChange(u, live *unstructured.Unstructured) field.ErrorList {
	mutable := []string{
		"replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit", "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
	}
	is, was := runtime.DeepCopyJSON(jsonvalue.Object(u.Object, "spec")), runtime.DeepCopyJSON(jsonvalue.Object(live.Object, "spec"))
	for _, f := range mutable {
		delete(is, f)
		delete(was, f)
	}
	if jsonvalue.Equal(is, was) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), "updates to statefulset spec for fields other than "+
		"'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden")}
}
