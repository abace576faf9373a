// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/mod/semver"
)

var (
	// unpublished finds sentences that a first release makes wrong.
	unpublished = regexp.MustCompile(`no\s+release\s+yet|first\s+release`)
	// named finds the version of Setpoint in commands and logs.
	named = regexp.MustCompile(`setpoint(?:/[a-z/-]+)?[@=](v[0-9]+\.[0-9]+\.[0-9]+)`)
)

// checkPages requires that README.md names the version, that docs/versions.md has a row for it, and
// that no page names another one or denies that there is a release.
func (r release) checkPages(ctx context.Context, _ string) ([]string, error) {
	var problems []string
	minor := semver.MajorMinor(r.version)
	if text, err := r.read("README.md"); err != nil || !strings.Contains(text, r.version) {
		problems = append(problems, fmt.Sprintf("README.md does not name %s: write it in the section of versions.", r.version))
	}
	if text, err := r.read("docs/versions.md"); err != nil || !strings.Contains(text, "\n| "+minor+" |") {
		problems = append(problems, fmt.Sprintf("docs/versions.md has no row for %s: add it to the table of versions.", minor))
	}
	names, err := r.tracked(ctx, "*.md", ":!CHANGELOG.md", ":!designs")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := r.read(name)
		if err != nil {
			continue // it is deleted, which checkTree reports
		}
		if m := unpublished.FindString(text); m != "" {
			problems = append(problems, fmt.Sprintf("%s has %q, which is wrong with a release: rewrite the sentence.", name, strings.Join(strings.Fields(m), " ")))
		}
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if m[1] != r.version {
				problems = append(problems, fmt.Sprintf("%s has %q: write %s there.", name, m[0], r.version))
			}
		}
	}
	return problems, nil
}
