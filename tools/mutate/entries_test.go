// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/tools/internal/mutation"
)

// TestEntries_ReplaceCodeOfTheTree shows early that an entry quotes code that has changed since.
func TestEntries_ReplaceCodeOfTheTree(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "mutations.txt"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := mutation.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	var drifted strings.Builder
	if err := printDrifted(&drifted, root, entries); err != nil {
		t.Error(err)
	}
	t.Log(drifted.String())
}
