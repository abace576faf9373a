// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
)

// Present returns a stored object in the table's version. A conversion webhook must have converted
// it before.
func (t *Table) Present(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	switch version := t.GV().String(); {
	case o == nil || o.GetAPIVersion() == version:
		return o, nil
	case t.Conversion == nil:
		return Relabeled(o, version), nil
	case t.shown[o][version] == nil:
		return nil, fmt.Errorf("sim: %s %q is not converted to %s; please report this", o.GetKind(), o.GetName(), version)
	default:
		return t.shown[o][version], nil
	}
}

// Presents reports whether Present can return a stored object.
func (t *Table) Presents(o *unstructured.Unstructured) bool {
	version := t.GV().String()
	return o.GetAPIVersion() == version || t.Conversion == nil || t.shown[o][version] != nil
}

// Relabeled returns an object with another apiVersion, which shares everything else.
func Relabeled(o *unstructured.Unstructured, version string) *unstructured.Unstructured {
	copied := maps.Clone(o.Object)
	copied["apiVersion"] = version
	return &unstructured.Unstructured{Object: copied}
}

// KeepShown records the converted form of a stored object.
func (s *Storage) KeepShown(o, shown *unstructured.Unstructured) {
	if o == shown {
		return
	}
	if s.shown[o] == nil {
		s.shown[o] = map[string]*unstructured.Unstructured{}
	}
	s.shown[o][shown.GetAPIVersion()] = shown
}

// ShowLike returns what t shows of a stored object that differs from an earlier one in metadata
// only. shown is what t shows of the earlier one.
func (t *Table) ShowLike(o, shown *unstructured.Unstructured) *unstructured.Unstructured {
	if t.Conversion == nil || o.GetAPIVersion() == t.GV().String() {
		return o
	}
	u := &unstructured.Unstructured{Object: maps.Clone(shown.Object)}
	metadata := maps.Clone(jsonvalue.Object(o.Object, "metadata"))
	for _, name := range []string{"labels", "annotations"} {
		jsonvalue.Keep(metadata, jsonvalue.Object(shown.Object, "metadata"), name)
	}
	u.Object["metadata"] = metadata
	t.KeepShown(o, u)
	return u
}

// WithVersion returns a copy of a stored object that shares everything but its resourceVersion.
func WithVersion(o *unstructured.Unstructured, version int64) *unstructured.Unstructured {
	metadata := maps.Clone(jsonvalue.Object(o.Object, "metadata"))
	metadata["resourceVersion"] = strconv.FormatInt(version, 10)
	u := &unstructured.Unstructured{Object: maps.Clone(o.Object)}
	u.Object["metadata"] = metadata
	return u
}
