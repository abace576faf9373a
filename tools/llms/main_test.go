// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"
)

func TestIndex_IsCurrent(t *testing.T) {
	want, err := index("../..")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("../../docs/llms.txt"); err != nil || string(got) != want {
		t.Errorf("docs/llms.txt is not current (%v): run 'make llms'", err)
	}
}

func TestOpening(t *testing.T) {
	title, paragraph := opening("# A title\n\nOne line,\nand [another](x.md).\n\nMore.\n")
	if title != "A title" || paragraph != "One line, and another." {
		t.Errorf("got %q and %q", title, paragraph)
	}
}
