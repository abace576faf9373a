// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package modules

import (
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

func TestModules_AreAllOfTheTree(t *testing.T) {
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "go.mod", "*/go.mod")
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	listed := slices.Concat(Published(), Unpublished())
	for _, name := range strings.Fields(string(out)) {
		if dir := path.Dir(name); !slices.Contains(listed, dir) {
			t.Errorf("%s is a new module: add it to Published or Unpublished", dir)
		} else {
			listed = slices.DeleteFunc(listed, func(d string) bool { return d == dir })
		}
	}
	for _, dir := range listed {
		t.Errorf("%s is listed, and has no go.mod: remove it from the list", dir)
	}
}
