// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package jsonvalue

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// FuzzJSON compares Encode and equal with the standard library.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"b":1,"a":"x","":null,"c":[true,false,1.5,-7,"<&>\u2028\n\u007fé\ud800"],"d":{},"e":[]}`, `"\"\\"`, `null`, `[[[]]]`, `{"é":{"\"":1e300}}`,
	} {
		f.Add(seed, seed)
		f.Add(seed, `{"a":1}`)
	}
	f.Add(`{"a":null}`, `{"b":null}`)
	f.Fuzz(func(t *testing.T, text, other string) {
		var a, b any
		if json.Unmarshal([]byte(text), &a) != nil || json.Unmarshal([]byte(other), &b) != nil {
			t.Skip("not JSON")
		}
		a, b = integers(a), integers(b)
		want := testkit.Must(json.Marshal(a))
		got := testkit.Must(Encode(a))
		testkit.Equal(t, string(got), string(want))
		testkit.Equal(t, Equal(a, b), reflect.DeepEqual(a, b), text, other)
	})
}

// integers gives integral numbers the type that they have in stored objects.
func integers(value any) any {
	switch v := value.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v)
		}
	case map[string]any:
		for name := range v {
			v[name] = integers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	}
	return value
}

func TestEqualDistinguishesNil(t *testing.T) {
	for _, pair := range [][2]any{
		{map[string]any(nil), map[string]any{}},
		{[]any(nil), []any{}},
		{nil, map[string]any(nil)},
		{int64(1), 1.0},
		{map[string]any{"a": nil}, map[string]any{}},
		{[]string{"a"}, []string{"b"}},
	} {
		testkit.Equal(t, Equal(pair[0], pair[1]), false, pair)
		testkit.Equal(t, Equal(pair[1], pair[0]), false, pair)
		testkit.Equal(t, Equal(pair[0], pair[0]), true, pair)
		data := testkit.Must(Encode(pair[0]))
		want := testkit.Must(json.Marshal(pair[0]))
		testkit.Equal(t, string(data), string(want))
	}
	testkit.NotEqual(t, testkit.Err(Encode(map[string]any{"a": []any{math.NaN()}})), nil)
}
