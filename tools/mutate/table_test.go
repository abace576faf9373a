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

func TestAppendix(t *testing.T) {
	promises := "# Title\n\n| # | Promise |\n|---|---|\n| W1 | One \\| two. |\n| W2 | Never. |\n"
	entries, err := parse("W1 q TestA\nin: q f\n- keep\n- if a || b {\n+ keep\n+ if a {\n\n" +
		"W2 q TestC\nin: q f\n- x\n+ y\n\nW1 q TestB\nin: q f\n- x := `y`\n")
	if err != nil {
		t.Fatal(err)
	}
	want := "\n## `W1`\n\n- `TestA` in [q](../q): `if a || b {` → `if a {`\n- `TestB` in [q](../q): `` x := `y` `` → (removed)\n" +
		"\n## `W2`\n\n- `TestC` in [q](../q): `x` → `y`\n"
	if text, err := appendix(promises, entries); err != nil || !strings.HasSuffix(text, ".\n"+want) {
		t.Errorf("err = %v, got\n%s\nwant at its end\n%s", err, text, want)
	}
	entries[1].guarantee = "X9"
	_, err = appendix(promises, entries)
	if err == nil || !strings.Contains(err.Error(), "X9 has no row") || !strings.Contains(err.Error(), "W2 has no entry") {
		t.Errorf("an entry without a row, and a row without an entry: %v", err)
	}
}

// TestGuarantees holds each promise of docs/guarantees.md to an entry of docs/mutations.txt, each
// entry to a test that names its guarantee, and docs/guarantees-tests.md to all of them.
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
	promises, err := os.ReadFile(filepath.Join(root, "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(root, "docs", "guarantees-tests.md"))
	if err != nil {
		t.Fatal(err)
	}
	if current, err := appendix(string(promises), entries); err != nil {
		t.Error(err)
	} else if current != string(written) {
		t.Error("docs/guarantees-tests.md is not current: run 'make guarantees'")
	}
	for _, e := range entries {
		source := functionSource(t, filepath.Join(root, e.dir), e.function())
		if source == "" {
			t.Errorf("docs/mutations.txt:%d: there is no %s in %s", e.line, e.function(), e.dir)
		} else if !cites(source, e.guarantee) {
			t.Errorf("docs/mutations.txt:%d: %s in %s does not name %s: cite it in the test's name or comment", e.line, e.function(), e.dir, e.guarantee)
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
