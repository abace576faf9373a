// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// The version is in two places: here, and in the program's requirements.
func TestRequirements_AreOfTheRelease(t *testing.T) {
	for _, r := range releases() {
		file := "controlplane/" + r.requirements() + ".mod"
		text, err := os.ReadFile(file)
		testkit.NoError(t, err)
		testkit.Contains(t, string(text), "\tk8s.io/kubernetes "+string(r)+"\n", file, "change one of them, and run go run tidy.go there")
	}
	files, err := filepath.Glob("controlplane/*.mod")
	testkit.NoError(t, err)
	testkit.Len(t, files, len(releases()), "one for each release")
}

// The two ends of the protocol are in two modules.
func TestOneProtocol(t *testing.T) {
	text, err := os.ReadFile("controlplane/pipe.go")
	testkit.NoError(t, err)
	testkit.Equal(t, protocol, 1)
	testkit.Contains(t, string(text), "\nconst protocol = 1\n", "controlplane/pipe.go")
}

// A module with replace lines, or without go.sum, cannot be installed by version.
func TestProgramCanBeInstalled(t *testing.T) {
	for _, r := range releases() {
		file := "controlplane/" + r.requirements()
		text, err := os.ReadFile(file + ".mod")
		testkit.NoError(t, err)
		testkit.NotContains(t, string(text), "replace", file, "run go run tidy.go there")
		testkit.NotContains(t, string(text), " v0.0.0\n", file, "run go run tidy.go there")
		testkit.Equal(t, testkit.Err(os.Stat(file+".sum")), nil)
	}
}

func TestFindSource(t *testing.T) {
	s, err := findSource(t.Context())
	testkit.NoError(t, err)
	testkit.NotEqual(t, s.dir, "")
	testkit.Equal(t, testkit.Err(os.Stat(filepath.Join(s.dir, "etcd.go"))), nil)
	listed, err := listSource(t.Context())
	testkit.Equal(t, err, nil)
	testkit.Equal(t, listed, s)
	t.Chdir(t.TempDir())
	_, err = listSource(t.Context())
	testkit.ErrorContains(t, err, modulePath, "outside of a module")
	testkit.ErrorContains(t, err, programVariable, "outside of a module")
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
		testkit.Equal(t, versionIn(test.info), test.want, name)
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
		before, ok := seen[k]
		testkit.Equal(t, ok, false, fmt.Sprintf("%v does not change the key of %s", step, before))
		seen[k] = step.name
	}
	last := key()
	write("main_test.go", "x")
	write("README.md", "x")
	write("kubernetes-1.36.mod", "x")
	write("kubernetes-1.36.sum", "x")
	write("only_1.36.go", "//go:build kubernetes1.36\n\npackage main\n")
	testkit.Equal(t, key(), last, "a file that is not used changes the key")
	older := func() string {
		t.Helper()
		k, err := source{dir: dir, release: "v1.36.3"}.key()
		testkit.NoError(t, err)
		return k
	}
	last = older()
	write("go.sum", "changed")
	testkit.Equal(t, older(), last, "go.sum changes the key of an older release")
	for _, name := range []string{"kubernetes-1.36.mod", "kubernetes-1.36.sum", "only_1.36.go", "main.go"} {
		write(name, "//go:build kubernetes1.36\n\npackage main // changed\n")
		testkit.NotEqual(t, older(), last, fmt.Sprintf("%s does not change the key of its release", name))
		last = older()
	}
	k, err := (source{version: "v0.3.0"}).key()
	testkit.NoError(t, err)
	testkit.Equal(t, k, "v0.3.0")
}
