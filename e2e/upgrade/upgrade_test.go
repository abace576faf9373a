// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package upgrade

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var from = flag.String("from", "", "the tag or commit of the other version; by default the newest tag v*, or "+unreleased)

// unreleased stands for the released version while there is none. It is a commit.
const unreleased = "fe85be5d"

// fleets are the packages with fleets, and the arguments of their tests.
var fleets = []struct {
	dir  string
	args []string
}{
	{"e2e/ha", []string{"-test.run=L2_LeadersInTrouble"}},
	// A replica that does not wait for the other version's writes does work twice with this lag.
	{"examples/sharded", []string{"-test.run=TestRounds", "-rounds=7", "-lag=200ms"}},
	{"e2e/rotation", []string{"-test.run=TestA1_NoRequestFailsOnTheRealAPIServer"}},
}

// TestFleetsOfTwoVersions: during a rolling update, and back, both versions keep the promises
// together.
func TestFleetsOfTwoVersions(t *testing.T) {
	if os.Getenv("SETPOINT_FULL") == "" {
		t.Skip("it builds another version, and runs each fleet; set SETPOINT_FULL=1")
	}
	root := strings.TrimSpace(command(t, ".", "git", "rev-parse", "--show-toplevel"))
	version := *from
	if version == "" {
		version = strings.TrimSpace(command(t, root, "git", "tag", "--list", "v*", "--sort=-version:refname"))
		version, _, _ = strings.Cut(version, "\n")
	}
	if version == "" {
		version = unreleased
	}
	version = strings.TrimSpace(command(t, root, "git", "rev-parse", version+"^{commit}"))
	source := filepath.Join(t.TempDir(), "source")
	command(t, root, "git", "clone", "-q", "--shared", "--no-checkout", root, source)
	command(t, source, "git", "checkout", "-q", version)
	t.Logf("the other version is %s", command(t, source, "git", "log", "-1", "--format=%h of %cs: %s"))
	now, other := t.TempDir(), t.TempDir()
	for _, f := range fleets {
		t.Run(f.dir, func(t *testing.T) {
			program := filepath.Base(f.dir) + ".test"
			command(t, filepath.Join(root, f.dir), "go", "test", "-c", "-o", filepath.Join(now, program))
			command(t, place(source, f.dir), "go", "test", "-c", "-o", filepath.Join(other, program))
			cmd := exec.CommandContext(t.Context(), filepath.Join(now, program), append(f.args, "-test.v", "-test.timeout=20m")...) //nolint:gosec // built above
			cmd.Dir, cmd.Env = filepath.Join(root, f.dir), append(os.Environ(), testkit.OtherVersion+"="+other)
			out, err := cmd.CombinedOutput()
			if text := string(out); err != nil || !strings.Contains(text, "--- PASS") {
				t.Fatalf("%s: %v\n%s", f.dir, err, text)
			}
			t.Logf("%s", out)
		})
	}
}

// place returns the folder of a package in a version. Older ones have e2e in internal/scenario.
func place(source, dir string) string {
	if _, err := os.Stat(filepath.Join(source, dir)); err != nil {
		dir = strings.Replace(dir, "e2e/", "internal/scenario/", 1)
	}
	return filepath.Join(source, dir)
}

func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
