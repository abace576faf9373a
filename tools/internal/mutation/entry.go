// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"fmt"
	"regexp"
	"strings"
)

// An Entry describes how to break one guarantee, and the test that must notice.
type Entry struct {
	Line      int // of the entry's first line
	Guarantee string
	Dir       string // of the package, relative to the repository
	Test      string
	Changes   []Change
}

// A Change replaces a piece of Go code that occurs once in a declaration.
type Change struct {
	Dir      string // of the package
	Decl     string // such as "take" or "core.take"
	Old, New []string
}

var (
	location  = regexp.MustCompile(`^in: (\S+) (\S+)$`)
	header    = regexp.MustCompile(`^([A-Z][0-9]+) (\S+) ((?:Test|Fuzz)\S*)$`)
	afterTest = regexp.MustCompile(`^(Test|Fuzz)[^/]*`)
)

// Function returns the test's Go function, without subtests.
func (e Entry) Function() string { return afterTest.FindString(e.Test) }

// Parse returns the entries of a register.
func Parse(text string) ([]Entry, error) {
	var entries []Entry
	var e *Entry
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
			entries = append(entries, Entry{Line: i + 1, Guarantee: m[1], Dir: m[2], Test: m[3]})
			e = &entries[len(entries)-1]
		case location.MatchString(line):
			m := location.FindStringSubmatch(line)
			e.Changes = append(e.Changes, Change{Dir: m[1], Decl: m[2]})
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
func (e *Entry) add(line string) error {
	if len(e.Changes) == 0 {
		return fmt.Errorf("want a package and a function, as in \"in: workqueue core.take\", before %q", line)
	}
	last := &e.Changes[len(e.Changes)-1]
	text := strings.TrimPrefix(line[1:], " ")
	switch line[0] {
	case '-':
		if len(last.New) > 0 {
			e.Changes = append(e.Changes, Change{Dir: last.Dir, Decl: last.Decl})
			last = &e.Changes[len(e.Changes)-1]
		}
		last.Old = append(last.Old, text)
	case '+':
		last.New = append(last.New, text)
	default:
		return fmt.Errorf("want a line that starts with - or + and got %q", line)
	}
	return nil
}

func complete(entries []Entry) error {
	for _, e := range entries {
		if len(e.Changes) == 0 {
			return fmt.Errorf("line %d: %s changes no code", e.Line, e.Guarantee)
		}
		for _, c := range e.Changes {
			if len(c.Old) == 0 {
				return fmt.Errorf("line %d: %s names no code of %s to replace", e.Line, e.Guarantee, c.Decl)
			}
			if strings.Join(c.Old, "\n") == strings.Join(c.New, "\n") {
				return fmt.Errorf("line %d: %s changes nothing in %s", e.Line, e.Guarantee, c.Decl)
			}
		}
	}
	return nil
}
