// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/tools/internal/changelog"
)

// checkChangelog requires a section with a date and text, and nothing left in Unreleased.
func (r release) checkChangelog(context.Context, string) ([]string, error) {
	text, err := r.read("CHANGELOG.md")
	if err != nil {
		return []string{"There is no CHANGELOG.md: add it, in the form of keepachangelog.com."}, nil
	}
	number := strings.TrimPrefix(r.version, "v")
	section, ok := changelog.Find(text, number)
	if !ok {
		return []string{fmt.Sprintf("CHANGELOG.md has no section [%s]: add \"## [%s] - %s\" below the heading [Unreleased].",
			number, number, time.Now().UTC().Format(time.DateOnly))}, nil
	}
	var problems []string
	if _, err := time.Parse(time.DateOnly, section.Date); err != nil {
		problems = append(problems, fmt.Sprintf("The section [%s] of CHANGELOG.md has no date: write \"## [%s] - %s\".",
			number, number, time.Now().UTC().Format(time.DateOnly)))
	}
	if section.Text == "" {
		problems = append(problems, fmt.Sprintf("The section [%s] of CHANGELOG.md is empty: list what users notice.", number))
	}
	if rest, _ := changelog.Find(text, "Unreleased"); rest.Text != "" {
		problems = append(problems, fmt.Sprintf("The section [Unreleased] of CHANGELOG.md has text: move it to [%s].", number))
	}
	return problems, nil
}
