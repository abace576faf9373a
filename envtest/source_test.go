// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

// The version is in three places: here, in the program, and in the program's go.mod.
func TestOneKubernetesVersion(t *testing.T) {
	for file, want := range map[string]string{
		"controlplane/go.mod":     "\tk8s.io/kubernetes " + KubernetesVersion + "\n",
		"controlplane/version.go": `const kubernetesVersion = "` + KubernetesVersion + `"` + "\n",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s does not say %q", file, want)
		}
	}
}

// The two ends of the protocol are in two modules.
func TestOneProtocol(t *testing.T) {
	text, err := os.ReadFile("controlplane/pipe.go")
	if err != nil {
		t.Fatal(err)
	}
	if protocol != 1 || !strings.Contains(string(text), "\nconst protocol = 1\n") {
		t.Error("envtest and controlplane/pipe.go do not speak the same protocol")
	}
}

// A module with replace lines, or without go.sum, cannot be installed by version.
func TestProgramCanBeInstalled(t *testing.T) {
	text, err := os.ReadFile("controlplane/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "replace") {
		t.Error("controlplane/go.mod has replace lines: run go run tidy.go there")
	}
	if _, err := os.Stat("controlplane/go.sum"); err != nil {
		t.Error(err)
	}
}

func TestFindSource(t *testing.T) {
	s, err := findSource(t.Context())
	if err != nil {
		t.Fatal(err)
	}
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
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key := func() string {
		t.Helper()
		k, err := source{dir: dir}.key()
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	seen := map[string]string{}
	for _, step := range []struct{ name, text string }{{"go.mod", "a"}, {"go.sum", "a"}, {"main.go", "a"}, {"main.go", "b"}, {"other.go", ""}} {
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
	if key() != last {
		t.Error("a file that is not compiled changes the key")
	}
	if k, err := (source{version: "v0.3.0"}).key(); k != "v0.3.0" || err != nil {
		t.Errorf("the key of a version: %q, %v", k, err)
	}
}
