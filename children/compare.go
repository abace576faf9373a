// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/client"
)

// content returns an object's fields as JSON has them. They must not be changed.
func content(obj client.Object) (map[string]any, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("reading its fields: %w", err)
	}
	return fields, nil
}

// differences are desired fields that an object does not have so.
type differences struct {
	paths   []string
	missing []string // the paths of fields that are not empty, and that the object does not have
}

// compare compares the desired fields with an object's. Fields that are not desired do not matter.
// Lists differ if their lengths do: without the schema it is unknown whether others may add
// elements. Neither is it known whether a missing field means the same as an empty one: it does not
// for automountServiceAccountToken. The answer is then at most one needless apply.
func compare(desired map[string]any, obj client.Object) (d differences, err error) {
	has, err := content(obj)
	if err == nil {
		d.compareMaps("", desired, has)
	}
	return d, err
}

func (d *differences) add(path string, missing bool) {
	if slices.Contains([]string{".apiVersion", ".kind", ".metadata.namespace"}, path) {
		return // the conversion of a typed object may lack them
	}
	d.paths = append(d.paths, path)
	if missing {
		d.missing = append(d.missing, path)
	}
}

func (d *differences) compareMaps(path string, desired, live map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(desired)) {
		at := path + "." + name
		if strings.ContainsAny(name, "./") {
			at = fmt.Sprintf("%s[%q]", path, name)
		}
		is, there := live[name]
		switch {
		case there:
			d.compareValues(at, desired[name], is)
		case desired[name] != nil:
			d.add(at, !empty(desired[name]))
		}
	}
}

func (d *differences) compareValues(path string, desired, live any) {
	switch want := desired.(type) {
	case map[string]any:
		if is, ok := live.(map[string]any); ok {
			d.compareMaps(path, want, is)
			return
		}
	case []any:
		if is, ok := live.([]any); ok && len(is) == len(want) {
			for i := range want {
				d.compareValues(fmt.Sprintf("%s[%d]", path, i), want[i], is[i])
			}
			return
		}
	}
	if !reflect.DeepEqual(desired, live) && (!empty(desired) || !empty(live)) {
		d.add(path, false)
	}
}

// empty reports whether the API server may leave a value out.
func empty(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for _, part := range v {
			if !empty(part) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	}
	return value == nil || reflect.ValueOf(value).IsZero()
}
