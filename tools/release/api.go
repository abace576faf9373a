// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/setpoint-dev/setpoint/tools/internal/api"
	"github.com/setpoint-dev/setpoint/tools/internal/changelog"
)

// checkAPI requires a current baseline. A patch version changes nothing incompatibly, and another
// version names in the changelog what it does.
func (r release) checkAPI(ctx context.Context, last string) ([]string, error) {
	now, err := api.Load(ctx, r.root, r.libraries)
	if err != nil {
		return nil, err
	}
	listed, err := api.Read(filepath.Join(r.root, "api"))
	if err != nil {
		return nil, err
	}
	var problems []string
	if stale := api.Compare(listed, now); len(stale) > 0 {
		problems = append(problems, fmt.Sprintf("The folder api is not current, for example %s of package %s: run 'make api', read its diff and commit it.",
			stale[0].Identifier, stale[0].Package))
	}
	if last == "" {
		return problems, nil
	}
	before, ref, err := api.Released(ctx, r.root)
	if err != nil {
		return nil, err
	}
	changes := api.Compare(before, now)
	text, _ := r.read("CHANGELOG.md")
	section, _ := changelog.Find(text, strings.TrimPrefix(r.version, "v"))
	for _, c := range api.Unexplained(changes, section.Text) {
		problems = append(problems, fmt.Sprintf("%s of package %s has changed incompatibly since %s: name it in the section of CHANGELOG.md, with its replacement.",
			c.Identifier, c.Package, ref))
	}
	i := slices.IndexFunc(changes, api.Change.Incompatible)
	if i >= 0 && semver.MajorMinor(r.version) == semver.MajorMinor(last) && semver.Prerelease(last) == "" {
		problems = append(problems, fmt.Sprintf("%s of package %s has changed incompatibly, and %s is a patch of %s: release the next minor version.",
			changes[i].Identifier, changes[i].Package, r.version, last))
	}
	return problems, nil
}
