// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const choices = `//go:build linux || !linux

// Package choices has functions of every form.
package choices

import "fmt"

type list[K comparable] struct{ all []K }

// add is a method of a generic type, with an unnamed result.
func (l *list[K]) add(first K, more ...K) int {
	l.all = append(append(l.all, first), more...)
	return len(l.all)
}

// convert has type parameters, and a parameter without a name.
func convert[A any, B fmt.Stringer](a A, _ B) (text string, err error) { return fmt.Sprint(a), nil }

func (list[K]) nothing(int, string) { said += "nothing" }

var said string

func mend() { recover(); said += "mended" }

var limit = 3
`

const use = `package choices

import (
	"testing"
	"time"
)

func Test(t *testing.T) {
	var l list[string]
	said = ""
	text, _ := convert(1, time.Second)
	l.nothing(1, "")
	t.Log("got", l.add("a", "b", "c"), text, said, limit)
}
`

// TestVariants: each mutant is chosen in the same program, and only its functions change.
func TestVariants(t *testing.T) {
	tree := t.TempDir()
	write(t, filepath.Join(tree, "go.mod"), "module example.com/choices\n\ngo 1.26.0\n")
	write(t, filepath.Join(tree, "choices.go"), choices)
	write(t, filepath.Join(tree, "choices_test.go"), use)
	v := variants{tree, map[string]*variantFile{}}
	for i, c := range []struct {
		old, new string
		together bool
	}{
		{"return len(l.all)", "return -len(l.all)", true},
		{"more...)", "first)", true},
		{"fmt.Sprint(a), nil", `"two", nil`, true},
		{`said += "nothing"`, `said += "something"`, true},
		{"limit = 3", "limit = 4", false},
		{"recover(); ", "", false},
		{"first K, more", "last K, more", false},
		{"len(l.all)", "len(l.none)", true},
	} {
		together, err := v.add(i+1, map[string]string{"choices.go": strings.Replace(choices, c.old, c.new, 1)})
		if err != nil || together != c.together {
			t.Errorf("%s for %s: together is %t, want %t (%v)", c.new, c.old, together, c.together, err)
		}
	}
	test := func(mutant string) string {
		cmd := exec.Command("go", "test", "-v", "-count=1")
		cmd.Dir, cmd.Env = tree, append(os.Environ(), "GOWORK=off", chosen+"="+mutant)
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	if err := v.write(); err != nil {
		t.Fatal(err)
	}
	out := test("0")
	match := compileError.FindStringSubmatch(out)
	if len(match) == 0 {
		t.Fatalf("the compiler accepts mutant 8:\n%s", out)
	}
	line, _ := strconv.Atoi(match[2])
	if n := v.at(filepath.Clean(match[1]), line); n != 8 {
		t.Fatalf("%q is told of mutant %d, want 8", match[0], n)
	}
	v.drop(8)
	if err := v.write(); err != nil {
		t.Fatal(err)
	}
	for mutant, want := range map[string]string{
		"0": "got 3 1 nothing 3", "1": "got -3 1 nothing 3", "2": "got 2 1 nothing 3", "3": "got 3 two nothing 3", "4": "got 3 1 something 3",
	} {
		if out := test(mutant); !strings.Contains(out, want+"\n") {
			t.Errorf("mutant %s: want %s in\n%s", mutant, want, out)
		}
	}
}
