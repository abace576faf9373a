// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
)

// KeepIdentity restores the metadata that no update changes.
func KeepIdentity(u, live *unstructured.Unstructured) {
	if u.GetUID() == "" {
		u.SetUID(live.GetUID())
	}
	u.SetCreationTimestamp(live.GetCreationTimestamp())
	if at := live.GetDeletionTimestamp(); at != nil {
		u.SetDeletionTimestamp(at)
	}
	if grace := live.GetDeletionGracePeriodSeconds(); grace != nil && u.GetDeletionGracePeriodSeconds() == nil {
		u.SetDeletionGracePeriodSeconds(grace)
	}
}

// Wipe removes the metadata that only the server sets.
func Wipe(u *unstructured.Unstructured) {
	for _, f := range []string{"creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"} {
		unstructured.RemoveNestedField(u.Object, "metadata", f)
	}
}

// PrepareCreate resets what a client may not set in a new object. blank is an object of the kind
// before its creation.
func PrepareCreate(d *kinds.Definition, u, blank *unstructured.Unstructured) {
	if d.Schema != nil {
		d.Schema.Default(u)
	}
	status := d.NewStatus
	if d.BuiltIn && blank != nil {
		status, _ = blank.Object["status"].(map[string]any)
	}
	switch {
	case !d.Status, d.BuiltIn && d.Kind == "Node": // a kubelet creates its Node with a status
	case status != nil:
		u.Object["status"] = runtime.DeepCopyJSON(status)
	default:
		delete(u.Object, "status")
	}
	if d.Generation != kinds.NoGeneration {
		u.SetGeneration(1)
	}
	if d.Prepare != nil {
		d.Prepare(u)
	}
}

// PrepareUpdate resets what the request may not change, and counts the generation.
func PrepareUpdate(d *kinds.Definition, u, live *unstructured.Unstructured, subresource string) {
	if d.Schema != nil {
		d.Schema.Default(u)
	}
	if d.IsNamespaces() {
		labelNamespace(u)
	}
	if subresource == "status" {
		prepareStatus(d, u, live)
		return
	}
	if d.Status {
		jsonvalue.Keep(u.Object, live.Object, "status")
	}
	if d.IsNamespaces() && subresource != "finalize" {
		SetSpecFinalizers(u, SpecFinalizers(live))
	}
	if ChangesGeneration(d, u, live) {
		u.SetGeneration(live.GetGeneration() + 1)
	}
	if d.Prepare != nil {
		d.Prepare(u)
	}
}

// ChangesGeneration reports whether a write that replaces live by u increments the generation.
func ChangesGeneration(d *kinds.Definition, u, live *unstructured.Unstructured) bool {
	switch d.Generation {
	case kinds.SpecGeneration:
		return !jsonvalue.Equal(u.Object["spec"], live.Object["spec"])
	case kinds.AnnotationGeneration:
		return !jsonvalue.Equal(u.Object["spec"], live.Object["spec"]) || !maps.Equal(u.GetAnnotations(), live.GetAnnotations())
	case kinds.ContentGeneration:
		return !equalContent(d, u, live)
	case kinds.LabelGeneration:
		return !equalContent(d, u, live) || !maps.Equal(u.GetLabels(), live.GetLabels())
	case kinds.NoGeneration:
	}
	return false
}

// equalContent compares everything outside metadata and a status with a subresource of its own.
func equalContent(d *kinds.Definition, u, live *unstructured.Unstructured) bool {
	ignored := func(field string) bool { return field == "metadata" || field == "status" && d.Status }
	for field, value := range u.Object {
		if !ignored(field) && !jsonvalue.Equal(value, live.Object[field]) {
			return false
		}
	}
	for field := range live.Object {
		if _, ok := u.Object[field]; !ok && !ignored(field) {
			return false
		}
	}
	return true
}

// prepareStatus gives u everything of live that a status update does not change.
func prepareStatus(d *kinds.Definition, u, live *unstructured.Unstructured) {
	if d.BuiltIn {
		jsonvalue.Keep(u.Object, live.Object, "spec")
		if d.Generation == kinds.AnnotationGeneration { // a Deployment
			u.SetLabels(live.GetLabels())
		}
		if d.Kind == "Pod" {
			u.SetOwnerReferences(live.GetOwnerReferences())
			u.SetDeletionTimestamp(nil)
			if class := jsonvalue.Object(live.Object, "status")["qosClass"]; class != nil {
				jsonvalue.SetField(u, class, "status", "qosClass")
			}
		}
		return
	}
	status, has := u.Object["status"]
	managed := u.GetManagedFields()
	u.Object = live.DeepCopy().Object
	if delete(u.Object, "status"); has {
		u.Object["status"] = status
	}
	u.SetManagedFields(managed)
}
