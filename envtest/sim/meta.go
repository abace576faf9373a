// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"maps"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// now is the time of a write. The API has no fractions of a second.
func now() metav1.Time { return metav1.NewTime(time.Now()) }

// equal reports whether two JSON values are equal.
func equal(a, b any) bool { return reflect.DeepEqual(a, b) }

// prepareCreate resets what a client may not set in a new object.
func (t *table) prepareCreate(u *unstructured.Unstructured) {
	switch {
	case !t.status:
	case t.newStatus != nil:
		u.Object["status"] = runtime.DeepCopyJSON(t.newStatus)
	default:
		delete(u.Object, "status")
	}
	if t.generation != noGeneration {
		u.SetGeneration(1)
	}
	if t.isNamespaces() {
		foundNamespace(u)
	}
}

// prepareUpdate resets what the request may not change, and counts the generation.
func (t *table) prepareUpdate(u, live *unstructured.Unstructured, subresource string) {
	if t.isNamespaces() {
		labelNamespace(u)
	}
	if subresource == "status" {
		t.prepareStatus(u, live)
		return
	}
	if t.status {
		keep(u.Object, live.Object, "status")
	}
	if t.isNamespaces() && subresource != "finalize" {
		setSpecFinalizers(u, specFinalizers(live))
	}
	if t.changesGeneration(u, live) {
		u.SetGeneration(live.GetGeneration() + 1)
	}
}

func (t *table) changesGeneration(u, live *unstructured.Unstructured) bool {
	switch t.generation {
	case specGeneration:
		return !equal(u.Object["spec"], live.Object["spec"])
	case annotationGeneration:
		return !equal(u.Object["spec"], live.Object["spec"]) || !maps.Equal(u.GetAnnotations(), live.GetAnnotations())
	case contentGeneration:
		return !t.equalContent(u, live)
	case labelGeneration:
		return !t.equalContent(u, live) || !maps.Equal(u.GetLabels(), live.GetLabels())
	case noGeneration:
	}
	return false
}

// equalContent compares everything outside metadata and a status with a subresource of its own.
func (t *table) equalContent(u, live *unstructured.Unstructured) bool {
	ignored := func(field string) bool { return field == "metadata" || field == "status" && t.status }
	for field, value := range u.Object {
		if !ignored(field) && !equal(value, live.Object[field]) {
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
