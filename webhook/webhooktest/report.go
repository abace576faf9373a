// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhooktest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// report collects the fields that differ.
type report struct {
	format  string // of a line, for the path and both values
	mayLose []string
	mayAdd  string // fields below it may be new
	lost    []string
}

type absent struct{}

func (r *report) compare(path string, before, after any) {
	if r.allowed(path, before) {
		return
	}
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok {
			r.fields(path, b, a)
			return
		}
	case []any:
		if a, ok := after.([]any); ok && len(a) == len(b) {
			for i := range b {
				r.compare(fmt.Sprintf("%s[%d]", path, i), b[i], a[i])
			}
			return
		}
	default:
		if before == after {
			return
		}
	}
	r.lost = append(r.lost, fmt.Sprintf(r.format, path, text(before), text(after)))
}

func (r *report) allowed(path string, before any) bool {
	if r.mayAdd != "" && before == (absent{}) && (path == r.mayAdd || strings.HasPrefix(path, r.mayAdd+".")) {
		return true
	}
	return slices.ContainsFunc(r.mayLose, func(p string) bool {
		rest, ok := strings.CutPrefix(path, p)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

func (r *report) fields(path string, before, after map[string]any) {
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, field := range slices.Sorted(maps.Keys(all)) {
		b, had := before[field]
		a, has := after[field]
		if !had {
			b = absent{}
		}
		if !has {
			a = absent{}
		}
		r.compare(strings.TrimPrefix(path+"."+field, "."), b, a)
	}
}

// text returns a value as short JSON.
func text(v any) string {
	if v == (absent{}) {
		return "nothing"
	}
	out, _ := json.Marshal(v) // it was decoded from JSON
	if s := string(out); len(s) <= 80 {
		return s
	}
	return string(out[:80]) + "…"
}
