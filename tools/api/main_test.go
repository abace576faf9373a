// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"

	"github.com/setpoint-dev/setpoint/tools/internal/api"
	"github.com/setpoint-dev/setpoint/tools/internal/changelog"
	"github.com/setpoint-dev/setpoint/tools/internal/modules"
)

func TestBaseline_IsCurrent(t *testing.T) {
	want, err := api.Load(t.Context(), "../..", modules.Libraries())
	if err != nil {
		t.Fatal(err)
	}
	if len(want) < 25 {
		t.Errorf("found %d packages, want at least 25", len(want))
	}
	got, err := api.Read("../../api")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range api.Compare(got, want) {
		t.Errorf("api/%s.txt is not current; run 'make api' and review its diff:\n%s", c.Package, c)
	}
}

func TestBaseline_ChangelogNamesIncompatibleChanges(t *testing.T) {
	now, err := api.Read("../../api")
	if err != nil {
		t.Fatal(err)
	}
	before, ref, err := api.Released(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	unreleased, ok := changelog.Find(string(text), "Unreleased")
	if !ok {
		t.Fatal("CHANGELOG.md has no section [Unreleased]: add it")
	}
	for _, c := range api.Unexplained(api.Compare(before, now), unreleased.Text) {
		t.Errorf("%s of package %s has changed since %s, and code that uses it may not compile; add a line to CHANGELOG.md, section Unreleased, that names %s, %s and the replacement:\n%s",
			c.Identifier, c.Package, ref, c.Package, c.Identifier, c)
	}
}
