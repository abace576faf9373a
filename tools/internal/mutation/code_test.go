// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestApply_Matches has pieces that survive changes of layout, and places to which code has moved.
func TestApply_Matches(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "q", "a.go"), `package q

type core[K comparable] struct{ n int }

func (c *core[K]) take(a, b int) bool {
	return call(
		a, // the first
		b,
	) || c.n == 0
}

func (c *core[K]) put() { c.n++; c.n++ }

const (
	one = 1
	two = 2
)
`)
	write(t, filepath.Join(root, "q", "b.go"), "package q\n\nfunc call(a, b int) bool { return a == b+7-a }\n")
	write(t, filepath.Join(root, "q", "b_test.go"), "package q\n\nfunc call2(a, b int) bool { return a == b+7-a }\n")
	write(t, filepath.Join(root, "r", "c.go"), "package r\n\nfunc Moved() int { return 8 - 4*2 + 1 }\n\nfunc other() int { return 8 - 4*2 + 1 }\n")
	for _, test := range []struct {
		text string // of a change
		want string // in a changed file, or in the error
	}{
		{"in: q core.take\n- call(a, b)\n+ true", "return true || c.n == 0"},
		{"in: q core.take\n- c.n ==\n- 0\n+ false", ") || false\n}"},
		{"in: q two\n- 2\n+ 3", "one = 1\n\ttwo = 3"},
		{"in: q core.take\n- call(a, b)\n+ true\n- true || c.n == 0\n+ false", "return false\n"},
		{"in: q core.take\n- a == b + 7 - a\n+ a == b", "return (a == b) }"},
		{"in: gone Moved\n- 8 - 4*2 + 1\n+ 8", "func Moved() int { return 8 }"},
		{"in: q core.put\n- c.n++\n+ c.n--", "core.put in q has the code to replace 2 times, not once: c.n++"},
		{"in: q call\n- c.n == 0\n+ true", "return call(\n\t\ta, // the first\n\t\tb,\n\t) || true"},
		{"in: gone moved\n- 1\n+ 8", "0 times"},
		{"in: gone moved\n- 8 - 4*2 + 1\n+ 8", "return 8 }\n\nfunc other"},
		{"in: q core.call\n- b+7\n+ b", "a == b-a }"},
		{"in: q call\n- 0\n+ 1", "0 times"},
		{"in: q call\n- a == b+7-a\n+ a =", "does not parse"},
		{"in: q call\n- // nothing\n+ a", "no code to replace"},
	} {
		entries, err := Parse("W1 q TestW1\n" + test.text + "\n")
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		m, err := NewCode(root).Apply(entries[0].Changes)
		if err != nil {
			got = err.Error()
		}
		for _, text := range m.Files {
			got += text
		}
		if !strings.Contains(got, test.want) {
			t.Errorf("%s\ngot  %s\nwant %s", test.text, got, test.want)
		}
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
