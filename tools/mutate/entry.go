// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
)

// An entry describes how to break one guarantee, and the test that must notice.
type entry struct {
	line      int // of the entry's first line
	guarantee string
	dir       string // of the package, relative to the repository
	test      string
	changes   []change
}

// A change replaces lines that occur once in a file.
type change struct {
	file     string
	old, new []string
}

var (
	header    = regexp.MustCompile(`^([A-Z][0-9]+) (\S+) ((?:Test|Fuzz)\S*)$`)
	afterTest = regexp.MustCompile(`^(Test|Fuzz)[^/]*`)
)

// function returns the test's Go function, without subtests.
func (e entry) function() string { return afterTest.FindString(e.test) }

func parse(text string) ([]entry, error) {
	var entries []entry
	var e *entry
	file := ""
	for i, line := range strings.Split(text, "\n") {
		var err error
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			e, file = nil, ""
		case e == nil:
			m := header.FindStringSubmatch(line)
			if m == nil {
				return nil, fmt.Errorf("line %d: want a guarantee, a package and a test, as in \"W1 workqueue TestW1_OneHolder\", and got %q", i+1, line)
			}
			entries = append(entries, entry{line: i + 1, guarantee: m[1], dir: m[2], test: m[3]})
			e = &entries[len(entries)-1]
		case strings.HasPrefix(line, "file: "):
			file = strings.TrimSpace(strings.TrimPrefix(line, "file: "))
			e.changes = append(e.changes, change{file: file})
		default:
			err = e.add(file, line)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return entries, complete(entries)
}

// add adds a line with a minus or a plus.
func (e *entry) add(file, line string) error {
	if file == "" {
		return fmt.Errorf("want \"file: path\" before %q", line)
	}
	last := &e.changes[len(e.changes)-1]
	switch line[0] {
	case '-':
		if len(last.new) > 0 {
			e.changes = append(e.changes, change{file: file})
			last = &e.changes[len(e.changes)-1]
		}
		last.old = append(last.old, line[1:])
	case '+':
		last.new = append(last.new, line[1:])
	default:
		return fmt.Errorf("want a line that starts with - or + and got %q", line)
	}
	return nil
}

func complete(entries []entry) error {
	for _, e := range entries {
		if len(e.changes) == 0 {
			return fmt.Errorf("line %d: %s changes no file", e.line, e.guarantee)
		}
		for _, c := range e.changes {
			if len(c.old) == 0 {
				return fmt.Errorf("line %d: %s names no line of %s to replace", e.line, e.guarantee, c.file)
			}
			if strings.Join(c.old, "\n") == strings.Join(c.new, "\n") {
				return fmt.Errorf("line %d: %s changes nothing in %s", e.line, e.guarantee, c.file)
			}
		}
	}
	return nil
}

// apply returns the text with the change applied.
func (c change) apply(text string) (string, error) {
	text = "\n" + text
	old := "\n" + strings.Join(c.old, "\n") + "\n"
	if n := strings.Count(text, old); n != 1 {
		return "", fmt.Errorf("%s has the lines to replace %d times, not once; the first of them is %q", c.file, n, c.old[0])
	}
	changed := "\n"
	if len(c.new) > 0 {
		changed += strings.Join(c.new, "\n") + "\n"
	}
	return strings.Replace(text, old, changed, 1)[1:], nil
}
