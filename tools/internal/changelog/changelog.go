// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package changelog reads CHANGELOG.md.
package changelog

import (
	"regexp"
	"strings"
)

var heading = regexp.MustCompile(`(?m)^## \[([^\]]+)\](.*)$`)

// A Section is what a version changes.
type Section struct {
	Version string // such as 0.1.0, or Unreleased
	Date    string // such as 2026-12-01, or empty
	Text    string // without the heading
}

// Sections returns the sections of a changelog in the form of Keep a Changelog, the newest first.
func Sections(text string) []Section {
	var all []Section
	found := heading.FindAllStringSubmatchIndex(text, -1)
	for i, m := range found {
		end := len(text)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		all = append(all, Section{
			Version: text[m[2]:m[3]],
			Date:    strings.TrimLeft(strings.TrimSpace(text[m[4]:m[5]]), "- "),
			Text:    strings.TrimSpace(text[m[1]:end]),
		})
	}
	return all
}

// Find returns the section of a version, and false if there is none.
func Find(text, version string) (Section, bool) {
	for _, s := range Sections(text) {
		if s.Version == version {
			return s, true
		}
	}
	return Section{}, false
}
