// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/tools/internal/mutation"
)

func TestAppendix(t *testing.T) {
	promises := []promise{{"W1", "One.", "q"}, {"W2", "Never.", "q"}}
	entries, err := mutation.Parse("W1 q TestA\nin: q f\n- keep\n- if a || b {\n+ keep\n+ if a {\n\n" +
		"W2 q TestC\nin: q f\n- x\n+ y\n\nW1 q TestB\nin: q f\n- x := `y`\n")
	if err != nil {
		t.Fatal(err)
	}
	want := "\n## `W1`\n\n- `TestA` in [q](../q): `if a || b {` → `if a {`\n- `TestB` in [q](../q): `` x := `y` `` → (removed)\n" +
		"\n## `W2`\n\n- `TestC` in [q](../q): `x` → `y`\n"
	if text, err := appendix(promises, entries); err != nil || !strings.HasSuffix(text, ".\n"+want) {
		t.Errorf("err = %v, got\n%s\nwant at its end\n%s", err, text, want)
	}
	_, err = appendix(append(promises, promise{"W3", "Late.", "q"}), entries)
	if err == nil || err.Error() != "W3 of package q has no entry in docs/mutations.txt; add its test and a mutation" {
		t.Errorf("a promise without an entry: %v", err)
	}
}

func TestCheckTests(t *testing.T) {
	promises := []promise{{"W1", "One.", "q"}, {"W2", "Never.", "q"}}
	tests := []string{"q TestW1_A", "q TestW1_W2_B", "q TestC", "q FuzzW1_D", "q TestW11_E"}
	for entry, want := range map[string]string{
		"W1 q TestW1_A":       "",
		"W2 q TestW1_W2_B/c":  "",
		"W1 q FuzzW1_D":       "",
		"W2 q TestW1_A":       "does not begin with W2",
		"W1 q TestC":          "docs/mutations.txt:1: the name of TestC does not begin with W1, as in TestW1_Name; rename it",
		"W1 q TestW11_E":      "does not begin with W1,",
		"W1 r TestW1_A":       "docs/mutations.txt:1: there is no TestW1_A in r; name its test",
		"X9 q TestW1_A":       "docs/mutations.txt:1: no package doc promises X9; add it",
		"W1 q TestW1_Missing": "there is no TestW1_Missing in q",
	} {
		entries, err := mutation.Parse(entry + "\nin: q f\n- x\n+ y\n")
		if err != nil {
			t.Fatal(err)
		}
		err = checkTests(promises, entries, slices.DeleteFunc(slices.Clone(tests), func(name string) bool {
			return name == "q TestW11_E" && !strings.Contains(entry, "W11")
		}))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", entry, err, want)
		}
	}
	err := checkTests(promises, nil, tests)
	if want := "TestW11_E in q names W11, which no package doc promises; add it to a doc, or rename the test"; err == nil || err.Error() != want {
		t.Errorf("a test without a promise: %v, want %s", err, want)
	}
}

// TestGuarantees holds each promise of a package doc to an entry of docs/mutations.txt, each entry
// to a test that begins with the number, and the pages in docs to all of them.
func TestGuarantees(t *testing.T) {
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "mutations.txt"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := mutation.Parse(string(text))
	if err != nil {
		t.Fatalf("docs/mutations.txt: %v", err)
	}
	current, err := tables(root, entries)
	if err != nil {
		t.Error(err)
	}
	for name, want := range current {
		if written, err := os.ReadFile(filepath.Join(root, "docs", name)); err != nil || string(written) != want {
			t.Errorf("docs/%s is not current: run 'make guarantees' (%v)", name, err)
		}
	}
}
