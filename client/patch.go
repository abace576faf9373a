// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// content returns the JSON of an object without what only the API server sets, and its status.
func content(obj Object) (main, status map[string]any, err error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, nil, err
	}
	if err := utiljson.Unmarshal(data, &main); err != nil { // with integers
		return nil, nil, err
	}
	delete(main, "apiVersion")
	delete(main, "kind")
	if m, ok := main["metadata"].(map[string]any); ok {
		for _, field := range []string{"labels", "annotations"} {
			if m[field] == nil { // so that a patch removes single ones
				m[field] = map[string]any{}
			}
		}
		for _, field := range []string{
			"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink",
		} {
			delete(m, field)
		}
	}
	status = map[string]any{}
	if s, ok := main["status"]; ok {
		status["status"] = s
		delete(main, "status")
	}
	return main, status, nil
}

// strategicPatch returns false if there is no strategic merge patch. For example, two ports of a
// Service may have the same number, which is the merge key, and different protocols.
func strategicPatch(was, is map[string]any, object Object) (map[string]any, bool) {
	if reflect.DeepEqual(was, is) {
		return nil, true
	}
	if patch := mergePatch(was, is); onlyStrings(patch, was, is, object) {
		return patch, true
	}
	is = withEmptyLists(is, was)
	patch, err := strategicpatch.CreateTwoWayMergeMapPatch(runtime.DeepCopyJSON(was), runtime.DeepCopyJSON(is), object)
	if err != nil || len(patch) == 0 {
		return nil, err == nil
	}
	result, err := strategicpatch.StrategicMergeMapPatch(runtime.DeepCopyJSON(was), runtime.DeepCopyJSON(patch), object)
	return patch, err == nil && reflect.DeepEqual(withoutNulls(map[string]any(result)), withoutNulls(is))
}

// onlyStrings reports whether a merge patch changes only labels, annotations and data: maps of
// strings. It then is a strategic merge patch, too. Other maps may be replaced as a whole, as a
// PodDisruptionBudget's selector.
func onlyStrings(patch, was, is map[string]any, of Object) bool {
	for field := range patch {
		switch field {
		case "metadata":
			changed, _ := patch[field].(map[string]any)
			before, _ := was[field].(map[string]any)
			after, _ := is[field].(map[string]any)
			for field := range changed {
				if field != "labels" && field != "annotations" || !areStrings(before[field]) || !areStrings(after[field]) {
					return false
				}
			}
		case "data":
			_, isConfigMap := of.(*corev1.ConfigMap)
			_, isSecret := of.(*corev1.Secret)
			if !isConfigMap && !isSecret || !areStrings(was[field]) || !areStrings(is[field]) {
				return false
			}
		default:
			return false
		}
	}
	return len(patch) > 0
}

// areStrings reports whether a value is a map of strings, and no key looks like a directive.
func areStrings(value any) bool {
	m, ok := value.(map[string]any)
	for key, v := range m {
		_, isString := v.(string)
		ok = ok && isString && !strings.HasPrefix(key, "$")
	}
	return ok
}

// withEmptyLists returns is with an empty list where only was has one, so that a patch removes
// single elements, and none that others have added.
func withEmptyLists(is, was map[string]any) map[string]any {
	is = maps.Clone(is)
	for field, before := range was {
		switch before := before.(type) {
		case []any:
			if is[field] == nil {
				is[field] = []any{}
			}
		case map[string]any:
			if object, ok := is[field].(map[string]any); ok {
				is[field] = withEmptyLists(object, before)
			}
		}
	}
	return is
}

// withoutNulls drops null fields, which count as absent.
func withoutNulls(value any) any {
	switch value := value.(type) {
	case map[string]any:
		fields := map[string]any{}
		for field, v := range value {
			if v != nil {
				fields[field] = withoutNulls(v)
			}
		}
		return fields
	case []any:
		items := make([]any, len(value))
		for i, v := range value {
			items[i] = withoutNulls(v)
		}
		return items
	}
	return value
}

// mergePatch returns the JSON merge patch (RFC 7396). In it, null deletes a field, so a null in is
// counts as no field.
func mergePatch(was, is map[string]any) map[string]any {
	patch := map[string]any{}
	for field, after := range is {
		before := was[field]
		old, wasObject := before.(map[string]any)
		object, isObject := after.(map[string]any)
		switch {
		case wasObject && isObject:
			if changes := mergePatch(old, object); len(changes) > 0 {
				patch[field] = changes
			}
		case !reflect.DeepEqual(before, after):
			patch[field] = after
		}
	}
	for field, before := range was {
		if _, kept := is[field]; !kept && before != nil {
			patch[field] = nil
		}
	}
	return patch
}
