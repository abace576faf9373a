// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

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

// managedBy is an object with its managedFields in Go types. An Unstructured converts them at each
// call, which field managers and validation make several times.
type managedBy struct {
	*unstructured.Unstructured
	entries []metav1.ManagedFieldsEntry
}

func (m *managedBy) GetManagedFields() []metav1.ManagedFieldsEntry { return m.entries }

// SetManagedFields implements metav1.Object. It does not change the Unstructured.
func (m *managedBy) SetManagedFields(entries []metav1.ManagedFieldsEntry) { m.entries = entries }

// ownable is a type converter that leaves out the metadata of a managedBy that has no owners.
type ownable struct{ managedfields.TypeConverter }

func (c ownable) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if m, ok := obj.(*managedBy); ok {
		obj = m.ownable()
	}
	return c.TypeConverter.ObjectToTyped(obj, options...)
}

// ownable returns the object without the fields that field managers never list.
func (m *managedBy) ownable() *unstructured.Unstructured {
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

// heads returns an object's managedFields without times and fields. Validation needs no more.
func heads(u *unstructured.Unstructured) []metav1.ManagedFieldsEntry {
	list := rawManagedFields(u)
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

// managed returns an object with its managedFields, or without if they are not valid.
func managed(u *unstructured.Unstructured) *managedBy {
	entries := heads(u)
	for i, item := range rawManagedFields(u) {
		entry, _ := item.(map[string]any)
		if text, ok := entry["time"].(string); ok {
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				return &managedBy{u, nil}
			}
			entries[i].Time = &metav1.Time{Time: at.Local()}
		}
		if fields, ok := entry["fieldsV1"]; ok {
			raw, err := jsonvalue.Encode(fields)
			if err != nil {
				return &managedBy{u, nil}
			}
			entries[i].FieldsV1 = metav1.NewFieldsV1(string(raw))
		}
	}
	return &managedBy{u, entries}
}

// setManagedEntries sets the managedFields of an object that has none.
func setManagedEntries(u *unstructured.Unstructured, entries []metav1.ManagedFieldsEntry) error {
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
