// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestVersion_ReleaseOrCommit: a build of a release has its version, and another one its commit.
func TestVersion_ReleaseOrCommit(t *testing.T) {
	git := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789ab"}, {Key: "vcs.modified", Value: "true"}}
	for _, c := range []struct {
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		{"v0.2.0", nil, "setpoint v0.2.0, go1.26.1"},
		{"v0.2.0-rc.1", nil, "setpoint v0.2.0-rc.1, go1.26.1"},
		{"(devel)", nil, "setpoint (devel), go1.26.1"},
		{"", nil, "setpoint (devel), go1.26.1"},
		{"(devel)", git, "setpoint (devel), commit 0123456789ab with changes, go1.26.1"},
		{"v0.2.0+dirty", git, "setpoint (devel), commit 0123456789ab with changes, go1.26.1"},
		{"v0.2.1-0.20260102030405-aaaaaaaaaaaa+dirty", git, "setpoint (devel), commit 0123456789ab with changes, go1.26.1"},
		{"v0.2.1-0.20260102030405-aaaaaaaaaaaa", nil, "setpoint (devel), commit aaaaaaaaaaaa, go1.26.1"},
	} {
		info := &debug.BuildInfo{GoVersion: "go1.26.1", Main: debug.Module{Version: c.version}, Settings: c.settings}
		testkit.Equal(t, describe(info), c.want, fmt.Sprintf("of the version %q, it prints", c.version))
	}
	for _, arg := range []string{"version", "--version"} {
		if out, err := setpoint(t, t.TempDir(), arg); err != nil || !strings.HasPrefix(out, "setpoint (devel)") || !strings.Contains(out, ", go1.") {
			t.Errorf("setpoint %s prints %q and returns %v", arg, out, err)
		}
	}
}
