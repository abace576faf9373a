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

// difference is a desired field that a live object has not.
type difference struct {
	path    string
	missing bool // the live object has no such field, although the value is not empty
}

// differences compares the desired fields with an object's. Fields that are not desired do not
// matter. Lists differ if their lengths do: without the schema it is unknown whether others may
// add elements. Neither is it known whether a missing field means the same as an empty one: it does
// not for automountServiceAccountToken. The answer is then at most one needless apply.
func differences(desired map[string]any, of client.Object) (all []difference, err error) {
	has, err := content(of)
	if err != nil {
		return nil, err
	}
	compareMaps("", desired, has, &all)
	return slices.DeleteFunc(all, func(d difference) bool {
		// The conversion of a typed object may lack them.
		return d.path == ".apiVersion" || d.path == ".kind" || d.path == ".metadata.namespace"
	}), nil
}

func compareMaps(path string, desired, live map[string]any, all *[]difference) {
	for _, name := range slices.Sorted(maps.Keys(desired)) {
		at := path + "." + name
		if strings.ContainsAny(name, "./") {
			at = fmt.Sprintf("%s[%q]", path, name)
		}
		is, there := live[name]
		switch {
		case there:
			compare(at, desired[name], is, all)
		case desired[name] != nil:
			*all = append(*all, difference{at, !empty(desired[name])})
		}
	}
}

func compare(path string, desired, live any, all *[]difference) {
	switch want := desired.(type) {
	case map[string]any:
		if is, ok := live.(map[string]any); ok {
			compareMaps(path, want, is, all)
			return
		}
	case []any:
		if is, ok := live.([]any); ok && len(is) == len(want) {
			for i := range want {
				compare(fmt.Sprintf("%s[%d]", path, i), want[i], is[i], all)
			}
			return
		}
	}
	if !reflect.DeepEqual(desired, live) && (!empty(desired) || !empty(live)) {
		*all = append(*all, difference{path, false})
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

func paths(of []difference) (all []string) {
	for _, d := range of {
		all = append(all, d.path)
	}
	return all
}
