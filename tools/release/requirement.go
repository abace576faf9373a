// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// checkRequirements requires that modules of the tree require each other at the version. A module
// that is never released may require v0.0.0, and replaces it.
func (r release) checkRequirements(ctx context.Context, _ string) ([]string, error) {
	names, err := r.tracked(ctx, "go.mod", "*/go.mod")
	if err != nil {
		return nil, err
	}
	root, err := r.read("go.mod")
	if err != nil {
		return nil, err
	}
	library := modfile.ModulePath([]byte(root))
	var problems []string
	for _, name := range names {
		text, err := r.read(name)
		if err != nil {
			return nil, err
		}
		file, err := modfile.Parse(name, []byte(text), nil)
		if err != nil {
			return nil, err
		}
		local := !slices.Contains(r.published, path.Dir(name))
		for _, require := range file.Require {
			m := require.Mod
			ours := m.Path == library || strings.HasPrefix(m.Path, library+"/")
			if !ours || m.Version == r.version || local && m.Version == "v0.0.0" {
				continue
			}
			problems = append(problems, fmt.Sprintf("%s requires %s %s: run 'go mod edit -require=%s@%s %s'.",
				name, m.Path, m.Version, m.Path, r.version, name))
		}
	}
	more, err := r.checkWorkspace(library)
	return append(problems, more...), err
}

// checkWorkspace requires that go.work replaces the version, which cannot be downloaded yet.
func (r release) checkWorkspace(library string) ([]string, error) {
	text, err := r.read("go.work")
	if err != nil {
		return nil, nil //nolint:nilerr // a repository with one module has none
	}
	work, err := modfile.ParseWork("go.work", []byte(text), nil)
	if err != nil {
		return nil, err
	}
	for _, replace := range work.Replace {
		if v := replace.Old.Version; replace.Old.Path == library && v != r.version && semver.IsValid(v) {
			return []string{fmt.Sprintf("go.work replaces %s %s: write %s there.", library, v, r.version)}, nil
		}
	}
	return nil, nil
}
