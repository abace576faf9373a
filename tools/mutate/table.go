// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/setpoint-dev/setpoint/tools/internal/mutation"
)

// tables returns the text of docs/guarantees.md and docs/guarantees-tests.md, by name. An error
// names each promise without an entry, and each test or entry without a promise.
func tables(root string, entries []mutation.Entry) (map[string]string, error) {
	promises, err := readPromises(root)
	if err != nil {
		return nil, err
	}
	text, err := appendix(promises, entries)
	if err != nil {
		return nil, err
	}
	tests, err := testNames(root)
	if err != nil {
		return nil, err
	}
	return map[string]string{"guarantees.md": promiseTable(promises), "guarantees-tests.md": text},
		checkTests(promises, entries, tests)
}

func writeTables(root string, entries []mutation.Entry) error {
	texts, err := tables(root, entries)
	if err != nil {
		return err
	}
	var errs []error
	for name, text := range texts {
		errs = append(errs, os.WriteFile(filepath.Join(root, "docs", name), []byte(text), 0o644))
	}
	return errors.Join(errs...)
}

// printDrifted prints the entries whose pieces have changed in the code.
func printDrifted(w io.Writer, root string, entries []mutation.Entry) error {
	c := mutation.NewCode(root)
	var errs []error
	for _, e := range entries {
		m, err := c.Apply(e.Changes)
		if err != nil {
			errs = append(errs, fmt.Errorf("docs/mutations.txt:%d: %w", e.Line, err))
		}
		if m.Drifted {
			fmt.Fprintf(w, "docs/mutations.txt:%d: the code of %s has changed; write its mutation with the new code\n", e.Line, e.Guarantee)
		}
	}
	return errors.Join(errs...)
}

// appendix lists the tests and mutations of each promise.
func appendix(promises []promise, entries []mutation.Entry) (string, error) {
	var errs []error
	text := "# How each guarantee is tested\n\n" +
		"`make guarantees` writes this page from [mutations.txt](mutations.txt). Each line has a test and a change to the\n" +
		"code that this test detects. [Guarantees](guarantees.md) lists the promises.\n"
	for _, p := range promises {
		lines := ""
		for _, e := range entries {
			if e.Guarantee == p.number {
				lines += fmt.Sprintf("- `%s` in [%s](../%s): %s\n", e.Test, e.Dir, e.Dir, summary(e))
			}
		}
		if lines == "" {
			errs = append(errs, fmt.Errorf("%s of package %s has no entry in docs/mutations.txt; add its test and a mutation", p.number, p.dir))
		}
		text += "\n## `" + p.number + "`\n\n" + lines
	}
	return text, errors.Join(errs...)
}

var cited = regexp.MustCompile(`^[A-Z][0-9]+$`)

// citedBy returns the numbers at the beginning of a test's name: W1 and W2 of TestW1_W2_Name.
func citedBy(test string) []string {
	parts := strings.Split(strings.TrimPrefix(strings.TrimPrefix(test, "Test"), "Fuzz"), "_")
	n := slices.IndexFunc(parts, func(p string) bool { return !cited.MatchString(p) })
	if n < 0 {
		n = len(parts)
	}
	return parts[:n]
}

// checkTests compares the names of tests, by "folder name", with promises and entries.
func checkTests(promises []promise, entries []mutation.Entry, tests []string) error {
	var errs []error
	promised := func(n string) bool {
		return slices.ContainsFunc(promises, func(p promise) bool { return p.number == n })
	}
	for _, t := range tests {
		dir, name, _ := strings.Cut(t, " ")
		for _, n := range citedBy(name) {
			if !promised(n) {
				errs = append(errs, fmt.Errorf("%s in %s names %s, which no package doc promises; add it to a doc, or rename the test", name, dir, n))
			}
		}
	}
	for _, e := range entries {
		switch {
		case !promised(e.Guarantee):
			errs = append(errs, fmt.Errorf("docs/mutations.txt:%d: no package doc promises %s; add it to the list \"Guarantees\" of a doc", e.Line, e.Guarantee))
		case !slices.Contains(tests, e.Dir+" "+e.Function()):
			errs = append(errs, fmt.Errorf("docs/mutations.txt:%d: there is no %s in %s; name its test", e.Line, e.Function(), e.Dir))
		case !slices.Contains(citedBy(e.Function()), e.Guarantee):
			errs = append(errs, fmt.Errorf("docs/mutations.txt:%d: the name of %s does not begin with %s, as in Test%s_Name; rename it", e.Line, e.Function(), e.Guarantee, e.Guarantee))
		}
	}
	return errors.Join(errs...)
}

// testNames returns the test functions of all packages, as "folder name".
func testNames(root string) ([]string, error) {
	c := mutation.NewCode(root)
	dirs, err := c.Dirs()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
				all = append(all, dir+" "+m[1])
			}
		}
	}
	return all, nil
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w*)\(`)

// summary shows the first changed line, before and after.
func summary(e mutation.Entry) string {
	c := e.Changes[0]
	before, after := c.Old, c.New
	for len(before) > 1 && len(after) > 0 && before[0] == after[0] {
		before, after = before[1:], after[1:]
	}
	to := "(removed)"
	if len(after) > 0 {
		to = quoted(after[0])
	}
	return quoted(before[0]) + " → " + to
}

func quoted(line string) string {
	line = strings.TrimSpace(line)
	if strings.Contains(line, "`") {
		return "`` " + line + " ``"
	}
	return "`" + line + "`"
}
