// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	mostChanges = 20  // fields of an object
	mostValue   = 120 // bytes of a field
)

// objects are the objects that a trace has seen, by UID.
type objects map[string]map[string]string

// look describes an object's version, and the fields that have changed since it was seen before.
func (o objects) look(v tracedValue) (version string, changes []string) {
	if v.Hidden != "" {
		return " (" + v.Hidden + ")", nil
	}
	var u unstructured.Unstructured
	if len(v.JSON) == 0 || json.Unmarshal(v.JSON, &u.Object) != nil {
		return "", nil
	}
	version = " at version " + u.GetResourceVersion()
	uid := string(u.GetUID())
	u.SetManagedFields(nil)
	u.SetResourceVersion("")
	u.SetGeneration(0)
	now := map[string]string{}
	flatten(now, "", u.Object)
	before, known := o[uid]
	o[uid] = now
	if !known {
		return version, nil
	}
	return version, differences(before, now)
}

// flatten collects the fields of an object, by path. A list is one field.
func flatten(to map[string]string, path string, value any) {
	if m, ok := value.(map[string]any); ok && len(m) > 0 {
		for name, v := range m {
			if strings.ContainsAny(name, "./") {
				name = fmt.Sprintf("[%q]", name)
			} else {
				name = "." + name
			}
			flatten(to, path+name, v)
		}
		return
	}
	if path == ".apiVersion" || path == ".kind" {
		return // caches leave them out
	}
	text, _ := json.Marshal(value) // it was JSON
	to[path] = string(text)
}

func differences(before, now map[string]string) (changes []string) {
	paths := map[string]bool{}
	for _, all := range []map[string]string{before, now} {
		for path := range all {
			if before[path] != now[path] {
				paths[path] = true
			}
		}
	}
	for i, path := range slices.Sorted(maps.Keys(paths)) {
		if i == mostChanges {
			return append(changes, fmt.Sprintf("and %d more fields", len(paths)-i))
		}
		changes = append(changes, fmt.Sprintf("%s: %s → %s", path, short(before[path]), short(now[path])))
	}
	return changes
}

func short(value string) string {
	switch {
	case value == "":
		return "none"
	case len(value) > mostValue:
		return value[:mostValue] + "…"
	}
	return value
}
