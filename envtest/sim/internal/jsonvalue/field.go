// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package jsonvalue

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Keep copies a field of live to u, or removes it from u.
func Keep(u, live map[string]any, field string) {
	if value, ok := live[field]; ok {
		u[field] = value
	} else {
		delete(u, field)
	}
}

// SetField sets a field of an object. The fields above it are objects, as in every built-in kind.
func SetField(u *unstructured.Unstructured, value any, path ...string) {
	_ = unstructured.SetNestedField(u.Object, value, path...)
}

// SetDefault sets a field that an object does not have.
func SetDefault(u *unstructured.Unstructured, value any, path ...string) {
	if _, ok, _ := unstructured.NestedFieldNoCopy(u.Object, path...); !ok {
		SetField(u, value, path...)
	}
}

// Object returns the JSON object at a path, or nil.
func Object(u map[string]any, fields ...string) map[string]any {
	value, _, _ := unstructured.NestedFieldNoCopy(u, fields...)
	m, _ := value.(map[string]any)
	return m
}
