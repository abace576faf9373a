// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	got, err := parse(`# a comment
W1 workqueue TestW1_OneHolder
file: workqueue/take.go
-	if held {
-		return
+	if false {
-last
+LAST
file: workqueue/add.go
-gone

L10 leaderelection FuzzTrust/seed_#0
# another
file: a.go
-- list
++ list
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []entry{
		{2, "W1", "workqueue", "TestW1_OneHolder", []change{
			{"workqueue/take.go", []string{"\tif held {", "\t\treturn"}, []string{"\tif false {"}},
			{"workqueue/take.go", []string{"last"}, []string{"LAST"}},
			{"workqueue/add.go", []string{"gone"}, nil},
		}},
		{12, "L10", "leaderelection", "FuzzTrust/seed_#0", []change{{"a.go", []string{"- list"}, []string{"+ list"}}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if f := got[1].function(); f != "FuzzTrust" {
		t.Errorf("function = %q", f)
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"W1 workqueue\nfile: a\n-x\n+y":               "line 1: want a guarantee",
		"W1 workqueue ExampleX\nfile: a\n-x\n+y":      "line 1: want a guarantee",
		"W1 workqueue TestX\n-x\n+y":                  `line 2: want "file: path" before "-x"`,
		"W1 workqueue TestX\nfile: a\nx":              "line 3: want a line that starts with - or +",
		"\n\nW1 workqueue TestX":                      "line 3: W1 changes no file",
		"W1 workqueue TestX\nfile: a\n+y":             "line 1: W1 names no line of a to replace",
		"W1 workqueue TestX\nfile: a\n-x\n+x":         "line 1: W1 changes nothing in a",
		"W1 workqueue TestX\nfile: a\n-x\n\n-y\n+z\n": "line 5: want a guarantee",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parse(%q) = %v, want an error with %q", text, err, want)
		}
	}
}

func TestApply(t *testing.T) {
	const text = "a\n\tb\nc\nb\n"
	for _, test := range []struct {
		old, new []string
		want     string // empty: an error
	}{
		{[]string{"\tb"}, []string{"B"}, "a\nB\nc\nb\n"},
		{[]string{"a"}, []string{"A", "AA"}, "A\nAA\n\tb\nc\nb\n"},
		{[]string{"\tb", "c"}, nil, "a\nb\n"},
		{[]string{"b"}, []string{"B"}, "a\n\tb\nc\nB\n"}, // leading white space counts
		{[]string{" b"}, []string{"B"}, ""},
		{[]string{"c", "a"}, []string{"B"}, ""},
	} {
		got, err := change{"f", test.old, test.new}.apply(text)
		if got != test.want || (err != nil) != (test.want == "") {
			t.Errorf("apply(%q → %q) = %q, %v; want %q", test.old, test.new, got, err, test.want)
		}
	}
	if _, err := (change{"f", []string{"x"}, nil}).apply("x\ny\nx\n"); err == nil || !strings.Contains(err.Error(), "2 times") {
		t.Errorf("lines that stand twice: %v", err)
	}
}
