// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestEntries_ReplaceLinesOfTheTree shows early that an entry quotes code that has changed since.
func TestEntries_ReplaceLinesOfTheTree(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "mutations.txt"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		changed := map[string]string{}
		for _, c := range e.changes {
			if _, ok := changed[c.file]; !ok {
				source, err := os.ReadFile(filepath.Join(root, c.file))
				if err != nil {
					t.Errorf("line %d, %s %s: %v", e.line, e.guarantee, e.test, err)
					continue
				}
				changed[c.file] = string(source)
			}
			if changed[c.file], err = c.apply(changed[c.file]); err != nil {
				t.Errorf("line %d, %s %s: %v", e.line, e.guarantee, e.test, err)
			}
		}
	}
}
