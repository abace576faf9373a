// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestEntries_ReplaceCodeOfTheTree shows early that an entry quotes code that has changed since.
func TestEntries_ReplaceCodeOfTheTree(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "mutations.txt"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	code := newCode(root)
	for _, e := range entries {
		if _, err := code.apply(e.changes); err != nil {
			t.Errorf("line %d, %s %s: %v", e.line, e.guarantee, e.test, err)
		}
	}
}
