// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"reflect"
	"testing"
)

// merged applies a JSON merge patch (RFC 7396).
func merged(object, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	result := map[string]any{}
	if fields, ok := object.(map[string]any); ok {
		for field, value := range fields {
			result[field] = value
		}
	}
	for field, change := range changes {
		if change == nil {
			delete(result, field)
		} else {
			result[field] = merged(result[field], change)
		}
	}
	return result
}

// bare returns a value without nulls in objects, which a merge patch cannot express.
func bare(value any) any {
	fields, ok := value.(map[string]any)
	if !ok {
		return value
	}
	result := map[string]any{}
	for field, v := range fields {
		if v != nil {
			result[field] = bare(v)
		}
	}
	return result
}

// FuzzMergePatch: the patch from one object to another, applied to the one, results in the other.
func FuzzMergePatch(f *testing.F) {
	for _, seed := range [][2]string{
		{`{}`, `{}`},
		{`{"a":1,"b":{"c":[1,2]}}`, `{"a":1,"b":{"c":[1]}}`},
		{`{"a":{"b":{"c":1}}}`, `{"a":{"b":{}}}`},
		{`{"a":{"b":1},"d":null}`, `{"a":[{"b":null}]}`},
		{`{"a":1}`, `{"a":null,"b":{"c":null}}`},
		{`{"a":"x"}`, `{"a":{"b":{}}}`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, from, to string) {
		var was, is map[string]any
		if json.Unmarshal([]byte(from), &was) != nil || json.Unmarshal([]byte(to), &is) != nil || was == nil || is == nil {
			t.Skip()
		}
		patch := mergePatch(was, is)
		if got := bare(merged(was, patch)); !reflect.DeepEqual(got, bare(is)) {
			t.Errorf("from %s to %s: the patch is %v, which results in %v", from, to, patch, got)
		}
		if reflect.DeepEqual(was, is) && len(patch) != 0 {
			t.Errorf("%s: the patch to the same is %v", from, patch)
		}
	})
}
