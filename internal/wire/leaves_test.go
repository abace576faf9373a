// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/wire"
)

// unasked returns how many fields of an object are not in a patch.
func unasked(t *testing.T, object, patch string) int {
	t.Helper()
	of, ok := wire.LeavesOf([]byte(object))
	var in wire.Leaves
	var readable bool
	if strings.HasPrefix(patch, "[") {
		in, _, readable = wire.LeavesOfJSONPatch([]byte(patch))
	} else {
		in, readable = wire.LeavesOf([]byte(patch))
	}
	if !ok || !readable {
		t.Fatalf("not readable: %s or %s", object, patch)
	}
	return len(slices.DeleteFunc(of.Values, func(v uint64) bool { return slices.Contains(in.Values, v) }))
}

func TestLeavesOf_APatchHasTheHashesOfItsObject(t *testing.T) {
	const object = `{"metadata":{"resourceVersion":"7","generation":2,"managedFields":[{"manager":"m"}],"labels":{"a/b":"1","c":"2"}},
		"status":{"conditions":[{"type":"A","status":"True"},{"type":"B","status":"False","message":"no\u0021"}],"n":[1,2],"e":{},"none":[]}}`
	for patch, left := range map[string]int{
		`{}`: 12,
		`{"metadata":{"resourceVersion":"8","labels":{"a/b":"1"}}}`:                       11,
		`{"metadata":{"labels":{"a/b":"2"}}}`:                                             12,
		`{"labels":{"a/b":"1"}}`:                                                          12,
		`{"status":{"conditions":[{"message":"no!","type":"B","status":"False"}]}}`:       9,
		`{"status":{"conditions":[{"type":"A","status":"False"}]}}`:                       11,
		`{"status":{"n":[1,2],"e":{},"none":[]}}`:                                         8,
		`{"status":{"n":[2,1]}}`:                                                          12,
		`{"status":{"n":null}}`:                                                           12,
		`[{"op":"add","path":"/metadata/labels/a~1b","value":"1"}]`:                       11,
		`[{"op":"replace","path":"/status/e","value":{}},{"op":"remove","path":"/x"}]`:    11,
		`[{"op":"replace","path":"/status/n","value":[1,2]}]`:                             10,
		`[{"op":"test","path":"/status/n","value":[1,2]},{"op":"move","path":"/status"}]`: 12,
	} {
		if got := unasked(t, object, patch); got != left {
			t.Errorf("%d fields besides %s, want %d", got, patch, left)
		}
	}
}

func TestLeavesOf_Shape(t *testing.T) {
	shape := func(object string) uint64 { f, _ := wire.LeavesOf([]byte(object)); return f.Shape }
	if shape(`{"a":1,"b":[{"name":"x","v":1}]}`) != shape(`{"b":[{"v":2,"name":"x"}],"a":"z"}`) {
		t.Error("values change the shape")
	}
	if shape(`{"a":1}`) == shape(`{"a":1,"b":null}`) || shape(`{"a":{"b":1}}`) == shape(`{"b":{"a":1}}`) {
		t.Error("other paths have the same shape")
	}
}

func TestLeavesOf_OrderCounts(t *testing.T) {
	if unasked(t, `{"l":[{"name":"a"},{"name":"b"}]}`, `{"l":[{"name":"b"},{"name":"a"}]}`) == 0 {
		t.Error("the order of a list does not count")
	}
}

func TestLeavesOf_Refuses(t *testing.T) {
	for _, data := range []string{"", "[]", `{"a":}`, `{"a":1} x`, `{"a":[` + strings.Repeat("1,", 9000) + `1]}`} {
		if _, ok := wire.LeavesOf([]byte(data)); ok {
			t.Errorf("%.20q is accepted", data)
		}
	}
	for _, data := range []string{"", "{}", `[{"op":"add","path":"/a","value":[1}]`, `[{"op":"add","path":"/a"}]`} {
		if _, _, ok := wire.LeavesOfJSONPatch([]byte(data)); ok {
			t.Errorf("%q is accepted", data)
		}
	}
	if _, version, _ := wire.LeavesOfJSONPatch([]byte(`[{"op":"test","path":"/metadata/resourceVersion","value":"7"}]`)); version != "7" {
		t.Errorf("the version is %q", version)
	}
}

func BenchmarkLeavesOf(b *testing.B) {
	data := []byte(`{"metadata":{"name":"a"},"spec":{"containers":[` + strings.Repeat(`{"name":"c","image":"registry.example.com/team/image:1.2.3","env":[{"name":"A","value":"some text"}]},`, 80) + `{}]}}`)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		wire.LeavesOf(data)
	}
}
