// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package traceparent has the annotation of KEP-5915. It carries the W3C trace context of the write
// that made an object what it is, and counts as no change of the object.
package traceparent

import "strings"

// Annotation is the key of the annotation.
const Annotation = "tracing.k8s.io/traceparent"

const pattern = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// Valid reports whether a value has the W3C format: version, trace ID, parent ID and flags, in
// lower-case hexadecimal digits. Neither ID may be 0. A later version must have the same length.
func Valid(value string) bool {
	if len(value) != len(pattern) {
		return false
	}
	for i := range len(value) {
		if c := value[i]; (c == '-') != (pattern[i] == '-') || c != '-' && !strings.ContainsRune("0123456789abcdef", rune(c)) {
			return false
		}
	}
	return value[:2] != "ff" && strings.Trim(value[3:35], "0") != "" && strings.Trim(value[36:52], "0") != ""
}

// SameAnnotations reports whether annotations are equal, but for Annotation.
func SameAnnotations(a, b map[string]string) bool {
	return subset(a, b) && subset(b, a)
}

func subset(of, all map[string]string) bool {
	for k, v := range of {
		if w, ok := all[k]; k != Annotation && (!ok || v != w) {
			return false
		}
	}
	return true
}

// Remove removes the annotation from an object's annotations in JSON form, and them if it was the
// only one. It changes the metadata, but not the annotations.
func Remove(metadata map[string]any) {
	all, ok := metadata["annotations"].(map[string]any)
	if _, has := all[Annotation]; !ok || !has {
		return
	}
	rest := make(map[string]any, len(all))
	for k, v := range all {
		if k != Annotation {
			rest[k] = v
		}
	}
	metadata["annotations"] = rest
	if len(rest) == 0 {
		delete(metadata, "annotations")
	}
}
