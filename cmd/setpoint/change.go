// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/format"
	"path"
	"regexp"
	"strings"
)

// change adds lines to a file, at a line that the file has.
type change struct {
	file string
	// line matches whole lines. The last match counts.
	line *regexp.Regexp
	// like is such a line, for messages.
	like string
	// text replaces the line. $0 stands for the line itself.
	text string
}

// below returns a change that puts text after a line.
func below(file, line, like, text string) change {
	return change{file: file, line: lines(line), like: like, text: "${0}" + escaped(text)}
}

// above returns a change that puts text before a line.
func above(file, line, like, text string) change {
	return change{file: file, line: lines(line), like: like, text: escaped(text) + "${0}"}
}

// exactly is the pattern of lines with this text.
func exactly(text string) string { return regexp.QuoteMeta(text) }

func lines(pattern string) *regexp.Regexp { return regexp.MustCompile(`(?m)^(?:` + pattern + `)\n`) }

func escaped(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// own is the text that the change adds.
func (c *change) own() string {
	return strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll(c.text, "${0}", ""), "$$", "$"))
}

// possible reports whether the file has the line.
func (c *change) possible(in files) bool { return c.line.MatchString(in[c.file]) }

// apply changes the file. The error names the line that it lacks.
func (c *change) apply(to files) error {
	text := to[c.file]
	all := c.line.FindAllStringSubmatchIndex(text, -1)
	if all == nil {
		return fmt.Errorf("%s has no line such as %q, which shows where to add something; put it back, or add this by hand:\n%s", c.file, c.like, c.own())
	}
	at := all[len(all)-1]
	text = text[:at[0]] + string(c.line.ExpandString(nil, c.text, text, at)) + text[at[1]:]
	if path.Ext(c.file) == ".go" {
		formatted, err := format.Source([]byte(text))
		if err != nil {
			return fmt.Errorf("%s: %w", c.file, err)
		}
		text = string(formatted)
	}
	to[c.file] = text
	return nil
}

func (f files) apply(changes ...change) error {
	for _, c := range changes {
		if err := c.apply(f); err != nil {
			return err
		}
	}
	return nil
}
