// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// The version is in two places: here, and in the program's requirements.
func TestRequirements_AreOfTheRelease(t *testing.T) {
	for _, r := range releases() {
		file := "controlplane/" + r.requirements() + ".mod"
		text, err := os.ReadFile(file)
		testkit.NoError(t, err)
		if want := "\tk8s.io/kubernetes " + string(r) + "\n"; !strings.Contains(string(text), want) {
			t.Errorf("%s does not have %q: change one of them, and run go run tidy.go there", file, want)
		}
	}
	files, err := filepath.Glob("controlplane/*.mod")
	if err != nil || len(files) != len(releases()) {
		t.Errorf("controlplane has %d module files (%v), want one for each of %v", len(files), err, releases())
	}
}

// The two ends of the protocol are in two modules.
func TestOneProtocol(t *testing.T) {
	text, err := os.ReadFile("controlplane/pipe.go")
	testkit.NoError(t, err)
	if protocol != 1 || !strings.Contains(string(text), "\nconst protocol = 1\n") {
		t.Error("envtest and controlplane/pipe.go do not speak the same protocol")
	}
}

// A module with replace lines, or without go.sum, cannot be installed by version.
func TestProgramCanBeInstalled(t *testing.T) {
	for _, r := range releases() {
		file := "controlplane/" + r.requirements()
		text, err := os.ReadFile(file + ".mod")
		testkit.NoError(t, err)
		if strings.Contains(string(text), "replace") || strings.Contains(string(text), " v0.0.0\n") {
			t.Errorf("%s.mod has replace lines, or requires staging modules at v0.0.0: run go run tidy.go there", file)
		}
		if _, err := os.Stat(file + ".sum"); err != nil {
			t.Error(err)
		}
	}
}

func TestFindSource(t *testing.T) {
	s, err := findSource(t.Context())
	testkit.NoError(t, err)
	if _, err := os.Stat(filepath.Join(s.dir, "etcd.go")); s.dir == "" || err != nil {
		t.Errorf("in the working tree the source is %+v: %v", s, err)
	}
	listed, err := listSource(t.Context())
	if err != nil || listed != s {
		t.Errorf("go list says %+v, %v, want %+v", listed, err, s)
	}
	t.Chdir(t.TempDir())
	if _, err := listSource(t.Context()); err == nil || !strings.Contains(err.Error(), modulePath) || !strings.Contains(err.Error(), programVariable) {
		t.Errorf("outside of a module: %v", err)
	}
}

func TestVersionIn(t *testing.T) {
	dependency := func(m debug.Module) *debug.BuildInfo {
		m.Path = modulePath
		return &debug.BuildInfo{Main: debug.Module{Path: "example.com/operator"}, Deps: []*debug.Module{{Path: "k8s.io/api", Version: "v0.37.2"}, &m}}
	}
	for name, test := range map[string]struct {
		info *debug.BuildInfo
		want string
	}{
		"published":            {dependency(debug.Module{Version: "v0.3.0"}), "v0.3.0"},
		"workspace":            {dependency(debug.Module{Version: "(devel)"}), ""},
		"replaced, directory":  {dependency(debug.Module{Version: "v0.3.0", Replace: &debug.Module{Path: "../setpoint"}}), ""},
		"replaced, other one":  {dependency(debug.Module{Version: "v0.3.0", Replace: &debug.Module{Path: modulePath, Version: "v0.4.0"}}), "v0.4.0"},
		"the module itself":    {&debug.BuildInfo{Main: debug.Module{Path: modulePath, Version: "(devel)"}}, ""},
		"without this package": {&debug.BuildInfo{}, ""},
	} {
		if got := versionIn(test.info); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestSourceKey(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	key := func() string {
		t.Helper()
		k, err := source{dir: dir, release: KubernetesVersion}.key()
		testkit.NoError(t, err)
		return k
	}
	seen := map[string]string{}
	for _, step := range []struct{ name, text string }{{"go.mod", "a"}, {"go.sum", "a"}, {"main.go", "package main"}, {"main.go", "package main // b"}, {"other.go", ""}} {
		write(step.name, step.text)
		k := key()
		if before, ok := seen[k]; ok {
			t.Errorf("%v does not change the key of %s", step, before)
		}
		seen[k] = step.name
	}
	last := key()
	write("main_test.go", "x")
	write("README.md", "x")
	write("kubernetes-1.36.mod", "x")
	write("kubernetes-1.36.sum", "x")
	write("only_1.36.go", "//go:build kubernetes1.36\n\npackage main\n")
	if key() != last {
		t.Error("a file that is not used changes the key")
	}
	older := func() string {
		t.Helper()
		k, err := source{dir: dir, release: "v1.36.3"}.key()
		testkit.NoError(t, err)
		return k
	}
	last = older()
	write("go.sum", "changed")
	if older() != last {
		t.Error("go.sum changes the key of an older release")
	}
	for _, name := range []string{"kubernetes-1.36.mod", "kubernetes-1.36.sum", "only_1.36.go", "main.go"} {
		write(name, "//go:build kubernetes1.36\n\npackage main // changed\n")
		if older() == last {
			t.Errorf("%s does not change the key of its release", name)
		}
		last = older()
	}
	if k, err := (source{version: "v0.3.0"}).key(); k != "v0.3.0" || err != nil {
		t.Errorf("the key of a version: %q, %v", k, err)
	}
}
