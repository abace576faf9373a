// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package changelog

import "testing"

func TestSections(t *testing.T) {
	all := Sections("# Changelog\n\n## [Unreleased]\n\n### Added\n\n- a\n\n## [0.1.0] - 2026-12-01\n\n- b\n")
	want := []Section{{"Unreleased", "", "### Added\n\n- a"}, {"0.1.0", "2026-12-01", "- b"}}
	if len(all) != 2 || all[0] != want[0] || all[1] != want[1] {
		t.Errorf("got %q, want %q", all, want)
	}
	if s, ok := Find("## [Unreleased]\n", "0.1.0"); ok {
		t.Errorf("found %q in a changelog without the version", s)
	}
}
