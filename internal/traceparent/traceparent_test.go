// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package traceparent_test

import (
	"maps"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/internal/traceparent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestValid(t *testing.T) {
	for value, want := range map[string]bool{
		valid:                               true,
		"cc" + valid[2:]:                    true,
		valid[:53] + "00":                   true,
		"":                                  false,
		"ff" + valid[2:]:                    false,
		valid + "-what":                     false,
		valid[:54]:                          false,
		strings.ToUpper(valid):              false,
		strings.Replace(valid, "-", "_", 1): false,
		strings.Replace(valid, "4", "-", 1): false,
		strings.Replace(valid, "4", "ä", 1)[:55]:                  false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01": false,
		strings.Repeat("0", 1<<20):                                false,
	} {
		if traceparent.Valid(value) != want {
			t.Errorf("Valid(%.60q) is %t", value, !want)
		}
	}
}

func TestSameAnnotations(t *testing.T) {
	a := func(of ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(of); i += 2 {
			m[of[i]] = of[i+1]
		}
		return m
	}
	for _, c := range []struct {
		one, other map[string]string
		same       bool
	}{
		{nil, a(), true},
		{nil, a(traceparent.Annotation, valid), true},
		{a("x", "1", traceparent.Annotation, "1"), a("x", "1", traceparent.Annotation, "2"), true},
		{a("x", "1", traceparent.Annotation, "1"), a("x", "1"), true},
		{a("x", "1", traceparent.Annotation, "1"), a("x", "2", traceparent.Annotation, "1"), false},
		{a("x", "1"), a(traceparent.Annotation, "1"), false},
		{a("x", ""), a("y", ""), false},
	} {
		if traceparent.SameAnnotations(c.one, c.other) != c.same || traceparent.SameAnnotations(c.other, c.one) != c.same {
			t.Errorf("%v and %v: same is %t", c.one, c.other, !c.same)
		}
	}
}

// TestRemove_LeavesTheOriginal: the annotations may belong to a cached object.
func TestRemove_LeavesTheOriginal(t *testing.T) {
	annotations := map[string]any{traceparent.Annotation: valid, "x": "1"}
	before := maps.Clone(annotations)
	metadata := map[string]any{"name": "a", "annotations": annotations}
	traceparent.Remove(metadata)
	testkit.DeepEqual(t, metadata, map[string]any{"name": "a", "annotations": map[string]any{"x": "1"}})
	testkit.DeepEqual(t, annotations, before)
	for _, metadata := range []map[string]any{{"name": "a", "annotations": map[string]any{traceparent.Annotation: valid}}, {"name": "a"}} {
		traceparent.Remove(metadata)
		testkit.DeepEqual(t, metadata, map[string]any{"name": "a"}, "left")
	}
}
