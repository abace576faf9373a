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

// A change replaces a piece of Go code that occurs once in a declaration.
type change struct {
	dir      string // of the package
	decl     string // such as "take" or "core.take"
	old, new []string
}

var (
	location  = regexp.MustCompile(`^in: (\S+) (\S+)$`)
	header    = regexp.MustCompile(`^([A-Z][0-9]+) (\S+) ((?:Test|Fuzz)\S*)$`)
	afterTest = regexp.MustCompile(`^(Test|Fuzz)[^/]*`)
)

// function returns the test's Go function, without subtests.
func (e entry) function() string { return afterTest.FindString(e.test) }

func parse(text string) ([]entry, error) {
	var entries []entry
	var e *entry
	for i, line := range strings.Split(text, "\n") {
		var err error
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			e = nil
		case e == nil:
			m := header.FindStringSubmatch(line)
			if m == nil {
				return nil, fmt.Errorf("line %d: want a guarantee, a package and a test, as in \"W1 workqueue TestW1_OneHolder\", and got %q", i+1, line)
			}
			entries = append(entries, entry{line: i + 1, guarantee: m[1], dir: m[2], test: m[3]})
			e = &entries[len(entries)-1]
		case location.MatchString(line):
			m := location.FindStringSubmatch(line)
			e.changes = append(e.changes, change{dir: m[1], decl: m[2]})
		default:
			err = e.add(line)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return entries, complete(entries)
}

// add adds a line with a minus or a plus.
func (e *entry) add(line string) error {
	if len(e.changes) == 0 {
		return fmt.Errorf("want a package and a function, as in \"in: workqueue core.take\", before %q", line)
	}
	last := &e.changes[len(e.changes)-1]
	text := strings.TrimPrefix(line[1:], " ")
	switch line[0] {
	case '-':
		if len(last.new) > 0 {
			e.changes = append(e.changes, change{dir: last.dir, decl: last.decl})
			last = &e.changes[len(e.changes)-1]
		}
		last.old = append(last.old, text)
	case '+':
		last.new = append(last.new, text)
	default:
		return fmt.Errorf("want a line that starts with - or + and got %q", line)
	}
	return nil
}

func complete(entries []entry) error {
	for _, e := range entries {
		if len(e.changes) == 0 {
			return fmt.Errorf("line %d: %s changes no code", e.line, e.guarantee)
		}
		for _, c := range e.changes {
			if len(c.old) == 0 {
				return fmt.Errorf("line %d: %s names no code of %s to replace", e.line, e.guarantee, c.decl)
			}
			if strings.Join(c.old, "\n") == strings.Join(c.new, "\n") {
				return fmt.Errorf("line %d: %s changes nothing in %s", e.line, e.guarantee, c.decl)
			}
		}
	}
	return nil
}
