// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package setpoint_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

var tierRow = regexp.MustCompile("(?m)^\\| `([a-z/]+)` \\| (\\w*) \\|$")

// TestStability_IsInTableAndDoc requires that each package with a file in api/ has a tier in
// docs/versions.md, and the same one in the last line of its package doc.
func TestStability_IsInTableAndDoc(t *testing.T) {
	table := map[string]string{}
	for _, m := range tierRow.FindAllStringSubmatch(read(t, "docs/versions.md"), -1) {
		if !slices.Contains([]string{"stable", "settling", "experimental"}, m[2]) {
			t.Errorf("docs/versions.md: %s has the tier %q; write stable, settling or experimental", m[1], m[2])
		}
		table[m[1]] = m[2]
	}
	files, err := filesNamed("api", ".txt")
	if err != nil || len(files) < 25 {
		t.Fatalf("api has %d files (%v), want at least 25", len(files), err)
	}
	for _, name := range files {
		name = strings.TrimSuffix(strings.TrimPrefix(name, "api/"), ".txt")
		testkit.NotEqual(t, table[name], "", fmt.Sprintf("docs/versions.md has no row for package %s", name), "add its tier")
	}
	for name, tier := range table {
		testkit.Equal(t, testkit.Err(os.Stat("api/"+name+".txt")), nil, fmt.Sprintf("docs/versions.md has a row for %s, which is no public package", name), "remove it")
		testkit.Equal(t, lastLine(t, name), "Stability: "+tier+".", fmt.Sprintf("the last line of the package doc of %s", name))
	}
}

// lastLine returns the last line of a package doc.
func lastLine(t *testing.T, dir string) string {
	for _, p := range packages(t) {
		for _, f := range p.production() {
			if p.dir == dir && f.ast.Doc != nil {
				lines := strings.Split(strings.TrimSpace(f.ast.Doc.Text()), "\n")
				return lines[len(lines)-1]
			}
		}
	}
	return ""
}
