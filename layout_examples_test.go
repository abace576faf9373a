// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package setpoint_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// mostLines is how many lines the main.go of an example may have after its imports.
const mostLines = 100

// TestExamples checks that each program in examples/ is short, has a test, and has a line in
// examples/README.md.
func TestExamples(t *testing.T) {
	readme := read(t, "examples/README.md")
	for _, p := range packages(t) {
		name, isExample := strings.CutPrefix(p.dir, "examples/")
		if !isExample || strings.Contains(name, "/") || p.name() != "main" {
			continue
		}
		testkit.Contains(t, readme, "| ["+name+"]("+name+") |", fmt.Sprintf("examples/README.md does not name %s", name), "add it to the table")
		if !slices.ContainsFunc(p.files, (*goFile).test) {
			t.Errorf("%s has no test", p.dir)
		}
		for _, f := range p.files {
			if n := f.linesAfterImports(); path.Base(f.path) == "main.go" && n > mostLines {
				t.Errorf("%s has %d lines after its imports, at most %d are allowed: move a part to another file", f.path, n, mostLines)
			}
		}
	}
}

func (f *goFile) linesAfterImports() int {
	last := 0
	for _, spec := range f.ast.Imports {
		last = f.line(spec)
	}
	return strings.Count(f.text, "\n") - last
}
