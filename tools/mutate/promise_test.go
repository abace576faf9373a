// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestReadPromises(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "q", "doc.go"), `// Package q is a queue.
//
//   - W7: not in the list.
//
// # Guarantees
//
//   - W10: Two keys [Queue.Get] share: |a| ≤
//     1. It holds. Details: with [Options].Weight.
//   - W2: Once.
//
// For W3 (package r), nothing.
//
// # Testing
//
//   - W8: after the list.
package q
`)
	write(t, filepath.Join(root, "r", "doc.go"), "// Package r has no promises.\npackage r\n")
	write(t, filepath.Join(root, "c", "doc.go"), "// Package c is last.\n//\n// # Guarantees\n//\n//   - C1: [Options].Max is kept.\npackage c\n")
	all, err := readPromises(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []promise{{"W2", "Once.", "q"}, {"W10", "Two keys `Queue.Get` share: |a| ≤ 1. It holds.", "q"}, {"C1", "`Options.Max` is kept.", "c"}}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("got  %+v\nwant %+v", all, want)
	}
	table := "\n## Workqueue\n\n| # | Promise |\n|---|---|\n| W2 | Once. |\n| W10 | Two keys `Queue.Get` share: \\|a\\| ≤ 1. It holds. |\n" +
		"\n## Controller\n\n| # | Promise |\n|---|---|\n| C1 | `Options.Max` is kept. |\n"
	if text := promiseTable(all); !strings.HasSuffix(text, ".\n"+table) {
		t.Errorf("got\n%s\nwant at its end\n%s", text, table)
	}

	write(t, filepath.Join(root, "r", "doc.go"), "// Package r repeats.\n//\n// # Guarantees\n//\n//   - W2: Once.\n//   - X9: None.\npackage r\n")
	_, err = readPromises(root)
	for _, want := range []string{
		`the docs of packages q and r both promise W2; a number has one place, so write "For W2" in the other`,
		"X9 of package r has no section; add its letter to sections in tools/mutate",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
