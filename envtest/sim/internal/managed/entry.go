// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package managed

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
)

// object is an object with its managedFields in Go types. An Unstructured converts them at each
// call, which field managers and validation make several times.
type object struct {
	*unstructured.Unstructured
	Entries []metav1.ManagedFieldsEntry
}

// GetManagedFields implements metav1.Object.
func (m *object) GetManagedFields() []metav1.ManagedFieldsEntry { return m.Entries }

// SetManagedFields implements metav1.Object. It does not change the Unstructured.
func (m *object) SetManagedFields(entries []metav1.ManagedFieldsEntry) { m.Entries = entries }

// Ownable is a type converter that leaves out the metadata of a Object that has no owners.
type Ownable struct{ managedfields.TypeConverter }

// ObjectToTyped implements managedfields.TypeConverter.
func (c Ownable) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if m, ok := obj.(*object); ok {
		obj = m.ownable()
	}
	return c.TypeConverter.ObjectToTyped(obj, options...)
}

// ownable returns the object without the fields that field managers never list.
func (m *object) ownable() *unstructured.Unstructured {
	all, ok := m.Object["metadata"].(map[string]any)
	if !ok {
		return m.Unstructured
	}
	metadata := make(map[string]any, len(all))
	for field, value := range all {
		switch field {
		case "name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion":
		default:
			metadata[field] = value
		}
	}
	content := maps.Clone(m.Object)
	content["metadata"] = metadata
	return &unstructured.Unstructured{Object: content}
}

// Heads returns an object with its managedFields without times and fields. Validation needs no
// more.
func Heads(u *unstructured.Unstructured) *object { return &object{u, heads(u)} }

func heads(u *unstructured.Unstructured) []metav1.ManagedFieldsEntry {
	list := raw(u)
	if list == nil {
		return nil
	}
	entries := make([]metav1.ManagedFieldsEntry, len(list))
	for i, item := range list {
		entry, _ := item.(map[string]any)
		text := func(field string) string {
			s, _ := entry[field].(string)
			return s
		}
		entries[i] = metav1.ManagedFieldsEntry{
			Manager: text("manager"), Operation: metav1.ManagedFieldsOperationType(text("operation")), APIVersion: text("apiVersion"),
			FieldsType: text("fieldsType"), Subresource: text("subresource"),
		}
	}
	return entries
}

// Read returns an object with its managedFields, or without if they are not valid.
func Read(u *unstructured.Unstructured) *object {
	entries := heads(u)
	for i, item := range raw(u) {
		entry, _ := item.(map[string]any)
		if text, ok := entry["time"].(string); ok {
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				return &object{u, nil}
			}
			entries[i].Time = &metav1.Time{Time: at.Local()}
		}
		if fields, ok := entry["fieldsV1"]; ok {
			raw, err := jsonvalue.Encode(fields)
			if err != nil {
				return &object{u, nil}
			}
			entries[i].FieldsV1 = metav1.NewFieldsV1(string(raw))
		}
	}
	return &object{u, entries}
}

// Write sets the managedFields of an object that has none.
func Write(u *unstructured.Unstructured, entries []metav1.ManagedFieldsEntry) error {
	if entries == nil {
		return nil
	}
	list := make([]any, len(entries))
	for i, e := range entries {
		entry := make(map[string]any, 7)
		for field, value := range map[string]string{
			"manager": e.Manager, "operation": string(e.Operation), "apiVersion": e.APIVersion, "fieldsType": e.FieldsType, "subresource": e.Subresource,
		} {
			if value != "" {
				entry[field] = value
			}
		}
		if e.Time != nil {
			entry["time"] = e.Time.ToUnstructured()
		}
		if e.FieldsV1 != nil {
			var fields map[string]any
			if err := kjson.UnmarshalCaseSensitivePreserveInts(e.FieldsV1.GetRawBytes(), &fields); err != nil {
				return err
			}
			entry["fieldsV1"] = fields
		}
		list[i] = entry
	}
	metadata, ok := u.Object["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		u.Object["metadata"] = metadata
	}
	metadata["managedFields"] = list
	return nil
}

// RevertTimes gives obj the managedFields of live if they differ in their times only and nothing
// else in obj differs. So a write that changes nothing makes no version.
func RevertTimes(live, obj *unstructured.Unstructured) {
	was, is := raw(live), raw(obj)
	if len(was) != len(is) || len(is) == 0 {
		return
	}
	moved := false
	for i := range is {
		old, _ := was[i].(map[string]any)
		entry, _ := is[i].(map[string]any)
		moved = moved || old["time"] != entry["time"]
		if !equalBut("time", old, entry) {
			return
		}
	}
	metadata, _ := obj.Object["metadata"].(map[string]any)
	if !moved || metadata == nil {
		return
	}
	if metadata["managedFields"] = was; !jsonvalue.Equal(live.Object, obj.Object) {
		metadata["managedFields"] = is
	}
}

// raw returns the managedFields of an object as JSON values.
func raw(u *unstructured.Unstructured) []any {
	metadata, _ := u.Object["metadata"].(map[string]any)
	list, _ := metadata["managedFields"].([]any)
	return list
}

// equalBut compares two objects without one field.
func equalBut(field string, a, b map[string]any) bool {
	for name := range a {
		if name != field && !jsonvalue.Equal(a[name], b[name]) {
			return false
		}
	}
	for name := range b {
		if _, ok := a[name]; name != field && !ok {
			return false
		}
	}
	return true
}
