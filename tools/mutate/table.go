// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// A row of docs/guarantees.md has four cells: number, promise, tests, mutations. -table writes the
// last two.
var tableRow = regexp.MustCompile(`(?m)^\| ([A-Z][0-9]+) \| (.*?[^\\]) \| .* \|$`)

func writeTable(file string, entries []entry) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	filled, err := fillTable(string(text), entries)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(filled), 0o644)
}

// fillTable returns the document with the entries' tests and mutations in their rows. Rows without
// an entry get "to come".
func fillTable(doc string, entries []entry) (string, error) {
	rows := map[string]bool{}
	filled := tableRow.ReplaceAllStringFunc(doc, func(row string) string {
		m := tableRow.FindStringSubmatch(row)
		rows[m[1]] = true
		var tests, mutations []string
		for _, e := range entries {
			if e.guarantee == m[1] {
				tests = append(tests, fmt.Sprintf("`%s` in [%s](../%s)", e.test, e.dir, e.dir))
				mutations = append(mutations, e.summary())
			}
		}
		if len(tests) == 0 {
			tests, mutations = []string{"to come"}, []string{""}
		}
		return fmt.Sprintf("| %s | %s | %s | %s |", m[1], m[2], strings.Join(tests, "<br>"), strings.Join(mutations, "<br>"))
	})
	var errs []error
	for _, guarantee := range guarantees(entries) {
		if !rows[guarantee] {
			errs = append(errs, fmt.Errorf("guarantee %s has an entry in mutations.txt and no row here; add \"| %s | what is promised | | |\"", guarantee, guarantee))
		}
	}
	return filled, errors.Join(errs...)
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
		to = code(after[0])
	}
	return code(before[0]) + " → " + to
}

func code(line string) string {
	line = strings.ReplaceAll(strings.TrimSpace(line), "|", `\|`)
	if line == "" {
		return "(nothing)"
	}
	if strings.Contains(line, "`") {
		return "`` " + line + " ``"
	}
	return "`" + line + "`"
}
