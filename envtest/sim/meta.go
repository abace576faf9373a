// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
)

// now is the time of a write. The API has no fractions of a second.
// prepareCreate resets what a client may not set in a new object.
func (t *table) prepareCreate(u *unstructured.Unstructured) {
	if t.Schema != nil {
		t.Schema.Default(u)
	}
	status := t.NewStatus
	if blank, err := t.empty(); err == nil && t.BuiltIn {
		status, _ = blank.Object["status"].(map[string]any)
	}
	switch {
	case !t.Status, t.BuiltIn && t.Kind == "Node": // a kubelet creates its Node with a status
	case status != nil:
		u.Object["status"] = runtime.DeepCopyJSON(status)
	default:
		delete(u.Object, "status")
	}
	if t.Generation != kinds.NoGeneration {
		u.SetGeneration(1)
	}
	if t.Prepare != nil {
		t.Prepare(u)
	}
}

// prepareUpdate resets what the request may not change, and counts the generation.
func (t *table) prepareUpdate(u, live *unstructured.Unstructured, subresource string) {
	if t.Schema != nil {
		t.Schema.Default(u)
	}
	if t.isNamespaces() {
		labelNamespace(u)
	}
	if subresource == "status" {
		t.prepareStatus(u, live)
		return
	}
	if t.Status {
		jsonvalue.Keep(u.Object, live.Object, "status")
	}
	if t.isNamespaces() && subresource != "finalize" {
		setSpecFinalizers(u, specFinalizers(live))
	}
	if t.changesGeneration(u, live) {
		u.SetGeneration(live.GetGeneration() + 1)
	}
	if t.Prepare != nil {
		t.Prepare(u)
	}
}

func (t *table) changesGeneration(u, live *unstructured.Unstructured) bool {
	switch t.Generation {
	case kinds.SpecGeneration:
		return !jsonvalue.Equal(u.Object["spec"], live.Object["spec"])
	case kinds.AnnotationGeneration:
		return !jsonvalue.Equal(u.Object["spec"], live.Object["spec"]) || !maps.Equal(u.GetAnnotations(), live.GetAnnotations())
	case kinds.ContentGeneration:
		return !t.equalContent(u, live)
	case kinds.LabelGeneration:
		return !t.equalContent(u, live) || !maps.Equal(u.GetLabels(), live.GetLabels())
	case kinds.NoGeneration:
	}
	return false
}

// equalContent compares everything outside metadata and a status with a subresource of its own.
func (t *table) equalContent(u, live *unstructured.Unstructured) bool {
	ignored := func(field string) bool { return field == "metadata" || field == "status" && t.Status }
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

// dedupOwners removes owner references that occur twice, with a warning like the real server's.
func (r *Request) dedupOwners(u *unstructured.Unstructured) {
	var kept []metav1.OwnerReference
	var twice []string
	owners := u.GetOwnerReferences()
	for _, o := range owners {
		if slices.ContainsFunc(kept, func(k metav1.OwnerReference) bool { return jsonvalue.Equal(k, o) }) {
			twice = append(twice, string(o.UID))
		} else {
			kept = append(kept, o)
		}
	}
	if len(twice) == 0 {
		return
	}
	when := ""
	if r.Verb == "patch" || r.Verb == "apply" {
		when = " after mutating admission happens"
	}
	r.warn(".metadata.ownerReferences contains duplicate entries" + when + "; API server dedups owner references in 1.20+, " +
		"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: " + strings.Join(twice, ", "))
	u.SetOwnerReferences(kept)
}

// warnFinalizers warns of new finalizers of a custom kind that have no domain.
func (r *Request) warnFinalizers(t *table, u, live *unstructured.Unstructured) {
	if t.BuiltIn {
		return
	}
	var old []string
	if live != nil {
		old = live.GetFinalizers()
	}
	for _, f := range slices.Sorted(slices.Values(u.GetFinalizers())) {
		if slices.Contains(old, f) {
			continue
		}
		for _, message := range utilvalidation.IsQualifiedName(f) {
			r.warn(fmt.Sprintf("metadata.finalizers: %q: %s", f, message))
		}
		if strings.Contains(f, "/") || slices.Contains(standardFinalizers, f) {
			continue
		}
		path := ""
		if strings.Contains(f, ".") {
			path = " including a path (/)"
		}
		r.warn(fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer name%s to avoid accidental conflicts with other finalizer writers", f, path))
	}
}
