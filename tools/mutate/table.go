// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A row of docs/guarantees.md has two cells: number and promise.
var tableRow = regexp.MustCompile(`(?m)^\| ([A-Z][0-9]+) \| \S.*\|$`)

// writeAppendix writes docs/guarantees-tests.md.
func writeAppendix(docs string, entries []entry) error {
	promises, err := os.ReadFile(filepath.Join(docs, "guarantees.md"))
	if err != nil {
		return err
	}
	text, err := appendix(string(promises), entries)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(docs, "guarantees-tests.md"), []byte(text), 0o644)
}

// appendix lists the tests and mutations of each guarantee in promises, the text of
// docs/guarantees.md. A guarantee without an entry, or an entry without a guarantee, is an error.
func appendix(promises string, entries []entry) (string, error) {
	var numbers []string
	var errs []error
	text := "# How each guarantee is tested\n\n" +
		"`make guarantees` writes this page from [mutations.txt](mutations.txt). Each line has a test and a change to the\n" +
		"code that this test detects. [Guarantees](guarantees.md) lists the promises.\n"
	for _, m := range tableRow.FindAllStringSubmatch(promises, -1) {
		numbers = append(numbers, m[1])
		lines := ""
		for _, e := range entries {
			if e.guarantee == m[1] {
				lines += fmt.Sprintf("- `%s` in [%s](../%s): %s\n", e.test, e.dir, e.dir, e.summary())
			}
		}
		if lines == "" {
			errs = append(errs, fmt.Errorf("docs/guarantees.md: %s has no entry in docs/mutations.txt; add its test and a mutation", m[1]))
		}
		text += "\n## `" + m[1] + "`\n\n" + lines
	}
	for _, guarantee := range guarantees(entries) {
		if !slices.Contains(numbers, guarantee) {
			errs = append(errs, fmt.Errorf("docs/mutations.txt: %s has no row in docs/guarantees.md; add \"| %s | the promise |\"", guarantee, guarantee))
		}
	}
	return text, errors.Join(errs...)
}

// summary shows the first changed line, before and after.
func (e entry) summary() string {
	c := e.changes[0]
	before, after := c.old, c.new
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
	if line == "" {
		return "(nothing)"
	}
	if strings.Contains(line, "`") {
		return "`` " + line + " ``"
	}
	return "`" + line + "`"
}
