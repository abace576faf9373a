// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	got, err := Parse(`# a comment
W1 workqueue TestW1_OneHolder
in: workqueue core.take
- if held {
- 	return
+ if false {
- last
+ LAST
in: workqueue add
- gone

L10 leaderelection FuzzTrust/seed_#0
# another
in: a b
- -x
+ x
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{
		{2, "W1", "workqueue", "TestW1_OneHolder", []Change{
			{"workqueue", "core.take", []string{"if held {", "\treturn"}, []string{"if false {"}},
			{"workqueue", "core.take", []string{"last"}, []string{"LAST"}},
			{"workqueue", "add", []string{"gone"}, nil},
		}},
		{12, "L10", "leaderelection", "FuzzTrust/seed_#0", []Change{{"a", "b", []string{"-x"}, []string{"x"}}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if f := got[1].Function(); f != "FuzzTrust" {
		t.Errorf("function = %q", f)
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"W1 workqueue\nin: a f\n-x\n+y":               "line 1: want a guarantee",
		"W1 workqueue ExampleX\nin: a f\n-x\n+y":      "line 1: want a guarantee",
		"W1 workqueue TestX\n-x\n+y":                  "line 2: want a package and a function",
		"W1 workqueue TestX\nin: a\n-x":               "line 2: want a package and a function",
		"W1 workqueue TestX\nin: a f\nx":              "line 3: want a line that starts with - or +",
		"\n\nW1 workqueue TestX":                      "line 3: W1 changes no code",
		"W1 workqueue TestX\nin: a f\n+y":             "line 1: W1 names no code of f to replace",
		"W1 workqueue TestX\nin: a f\n-x\n+x":         "line 1: W1 changes nothing in f",
		"W1 workqueue TestX\nin: a f\n-x\n\n-y\n+z\n": "line 5: want a guarantee",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want an error with %q", text, err, want)
		}
	}
}
