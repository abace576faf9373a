// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestFillTable(t *testing.T) {
	doc := "# Title\n| | promise | test | mutation |\n|---|---|---|---|\n| W1 | one \\| two | old | old |\n| W2 | never | | |\n\nText.\n"
	entries, err := parse("W1 q TestA\nfile: a.go\n-\tkeep\n-\tif a || b {\n+\tkeep\n+\tif a {\n\nW1 q TestB\nfile: a.go\n-x := `y`\n")
	if err != nil {
		t.Fatal(err)
	}
	want := "# Title\n| | promise | test | mutation |\n|---|---|---|---|\n" +
		"| W1 | one \\| two | `TestA` in [q](../q)<br>`TestB` in [q](../q) | `if a \\|\\| b {` → `if a {`<br>`` x := `y` `` → (removed) |\n" +
		"| W2 | never | to come |  |\n\nText.\n"
	for range 2 { // filling a filled table changes nothing
		if doc, err = fillTable(doc, entries); err != nil || doc != want {
			t.Fatalf("err = %v, got\n%s\nwant\n%s", err, doc, want)
		}
	}
	entries[0].guarantee = "X9"
	if _, err = fillTable(doc, entries); err == nil || !strings.Contains(err.Error(), "guarantee X9 has an entry") {
		t.Errorf("an entry without a row: %v", err)
	}
}

// TestGuarantees compares docs/mutations.txt, docs/guarantees.md and the tests.
func TestGuarantees(t *testing.T) {
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "mutations.txt"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := parse(string(text))
	if err != nil {
		t.Fatalf("docs/mutations.txt: %v", err)
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	if filled, err := fillTable(string(doc), entries); err != nil || filled != string(doc) {
		t.Errorf("docs/guarantees.md differs from docs/mutations.txt: run 'make guarantees' (%v)", err)
	}
	for _, e := range entries {
		source := functionSource(t, filepath.Join(root, e.dir), e.function())
		if source == "" {
			t.Errorf("docs/mutations.txt:%d: there is no %s in %s", e.line, e.function(), e.dir)
		} else if !cites(source, e.guarantee) {
			t.Errorf("docs/mutations.txt:%d: %s in %s does not name %s: cite it in the test's name or comment", e.line, e.function(), e.dir, e.guarantee)
		}
		for _, c := range e.changes {
			file, err := os.ReadFile(filepath.Join(root, c.file))
			if err == nil {
				_, err = c.apply(string(file))
			}
			if err != nil {
				t.Errorf("docs/mutations.txt:%d: %v", e.line, err)
			}
		}
	}
}

// functionSource returns a test function with its comment, or nothing.
func functionSource(t *testing.T, dir, name string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, file, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == name {
				from := fn.Pos()
				if fn.Doc != nil {
					from = fn.Doc.Pos()
				}
				return string(text[fset.Position(from).Offset:fset.Position(fn.End()).Offset])
			}
		}
	}
	return ""
}

// cites reports whether the source contains a number, such as W1 in TestW1_OneHolder but not W10.
func cites(source, guarantee string) bool {
	return regexp.MustCompile(`(^|[^A-Z0-9])` + guarantee + `([^0-9]|$)`).MatchString(source)
}

func TestCites(t *testing.T) {
	for source, want := range map[string]bool{
		"func TestW1_OneHolder": true, "// W1: one holder": true, "W1": true,
		"TestW10": false, "SW1": false, "w1": false,
	} {
		if got := cites(source, "W1"); got != want {
			t.Errorf("cites(%q) = %v", source, got)
		}
	}
}
