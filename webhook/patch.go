// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// patchOf returns a JSON patch (RFC 6902) of raw, or nil. before is raw without the fields that the
// Go type does not have. Patching raw changes it as before differs from after, so unknown fields
// stay.
func patchOf(raw, before, after []byte) ([]byte, error) {
	if bytes.Equal(before, after) {
		return nil, nil
	}
	var versions [3]any
	for i, text := range [...][]byte{raw, before, after} {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber() // keeps all digits
		if err := d.Decode(&versions[i]); err != nil {
			return nil, err
		}
	}
	p := &patch{}
	p.value("", versions[0], versions[1], versions[2])
	if p.operations == nil {
		return nil, nil
	}
	return encode(p.operations)
}

// patch collects operations. Its methods append operations that turn raw into the result, which
// they return.
type patch struct{ operations []operation }

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value *any   `json:"value,omitempty"`
}

func (p *patch) set(op, path string, value any) any {
	p.operations = append(p.operations, operation{op, path, &value})
	return value
}

func (p *patch) remove(path string) {
	p.operations = append(p.operations, operation{Op: "remove", Path: path})
}

func (p *patch) value(path string, raw, before, after any) any {
	if reflect.DeepEqual(before, after) {
		return raw
	}
	switch a := after.(type) {
	case map[string]any:
		r, isObject := raw.(map[string]any)
		b, wasObject := before.(map[string]any)
		if isObject && wasObject {
			return p.object(path, r, b, a)
		}
	case []any:
		r, isList := raw.([]any)
		b, wasList := before.([]any)
		if isList && wasList && len(r) == len(b) {
			return p.list(path, r, b, a)
		}
	}
	return p.set("replace", path, after)
}

func (p *patch) object(path string, raw, before, after map[string]any) any {
	result := maps.Clone(raw)
	for _, k := range slices.Sorted(maps.Keys(after)) {
		a := after[k]
		b, had := before[k]
		if had && reflect.DeepEqual(b, a) {
			continue
		}
		r, has := raw[k]
		at := path + "/" + escaped(k)
		object, isObject := r.(map[string]any)
		switch {
		case !has:
			result[k] = p.set("add", at, changed(b, a))
		case had:
			result[k] = p.value(at, r, b, a)
		case isObject: // the Go type omits its zero value
			result[k] = p.value(at, object, map[string]any{}, a)
		default:
			result[k] = p.set("replace", at, a)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(before)) {
		_, kept := after[k]
		if _, has := raw[k]; has && !kept {
			p.remove(path + "/" + escaped(k))
			delete(result, k)
		}
	}
	return result
}

// changed returns the fields of after that differ from before, if both are objects, else after. So
// a new object has no zero values that only the Go type encodes.
func changed(before, after any) any {
	b, wasObject := before.(map[string]any)
	a, isObject := after.(map[string]any)
	if !wasObject || !isObject {
		return after
	}
	part := map[string]any{}
	for k, v := range a {
		if old, had := b[k]; !had || !reflect.DeepEqual(old, v) {
			part[k] = changed(b[k], v)
		}
	}
	return part
}

// list patches a list by element. If that would be longer, or needs another order, it replaces the
// list.
func (p *patch) list(path string, raw, before, after []any) any {
	origin := origins(before, after)
	kept, last, short := make([]bool, len(raw)), -1, true
	for _, i := range origin {
		if i >= 0 {
			kept[i] = true
			short = short && i > last
			last = i
		}
	}
	begin, moves := len(p.operations), 0
	for i, keep := range slices.Backward(kept) {
		if !keep {
			p.remove(path + "/" + strconv.Itoa(i))
			moves++
		}
	}
	result := make([]any, len(after))
	for j, i := range origin {
		at := path + "/" + strconv.Itoa(j)
		if i >= 0 {
			result[j] = p.value(at, raw[i], before[i], after[j])
		} else {
			result[j] = p.set("add", at, after[j])
			moves++
		}
	}
	if short = short && moves <= len(after); !short {
		p.operations = p.operations[:begin]
		p.set("replace", path, result)
	}
	return result
}

func escaped(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}
