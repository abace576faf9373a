// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// diff returns a line for each difference between two JSON values.
func diff(path string, real, sim any) []string {
	if reflect.DeepEqual(real, sim) {
		return nil
	}
	if a, ok := real.(map[string]any); ok {
		if b, ok := sim.(map[string]any); ok {
			return diffMaps(path, a, b)
		}
	}
	if a, ok := real.([]any); ok {
		if b, ok := sim.([]any); ok && len(a) == len(b) {
			var lines []string
			for i := range a {
				lines = append(lines, diff(fmt.Sprintf("%s[%d]", path, i), a[i], b[i])...)
			}
			return lines
		}
	}
	return []string{fmt.Sprintf("%s\n\t\treal %s\n\t\tsim  %s", path, short(real), short(sim))}
}

func diffMaps(path string, real, sim map[string]any) []string {
	names := maps.Clone(real)
	maps.Copy(names, sim)
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, inReal := real[name]
		b, inSim := sim[name]
		switch {
		case !inReal:
			lines = append(lines, fmt.Sprintf("%s.%s\n\t\treal has none\n\t\tsim  %s", path, name, short(b)))
		case !inSim:
			lines = append(lines, fmt.Sprintf("%s.%s\n\t\treal %s\n\t\tsim  has none", path, name, short(a)))
		default:
			lines = append(lines, diff(path+"."+name, a, b)...)
		}
	}
	return lines
}

func short(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	if len(data) > 600 {
		return string(data[:600]) + "…"
	}
	return string(data)
}

func diffResponses(real, sim *response) []string {
	if real == nil || sim == nil {
		return nil // a step that waits
	}
	var lines []string
	if real.Status != sim.Status {
		lines = append(lines, fmt.Sprintf("code\n\t\treal %d\n\t\tsim  %d", real.Status, sim.Status))
	}
	lines = append(lines, diff("header", plainJSON(real.Headers), plainJSON(sim.Headers))...)
	return append(lines, diff("body", real.Body, sim.Body)...)
}

func plainJSON(headers map[string][]string) any {
	all := map[string]any{}
	for name, values := range headers {
		list := []any{}
		for _, v := range values {
			list = append(list, v)
		}
		all[name] = list
	}
	return all
}
