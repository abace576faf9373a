// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/tools/internal/modules"
)

const version = "v0.1.0"

// A user is a machine that has only Go, and gets our modules by version.
type user struct {
	t   *testing.T
	env []string
	// dry resolves versions, files and imports, and does not compile.
	dry bool
}

// newUser serves the working tree as a release. Other modules come from this machine's module cache
// where it has them. A build of them is in the build cache after the first run: -trimpath keeps the
// directory of the new module cache out of its key.
func newUser(t *testing.T) *user {
	proxy := t.TempDir()
	if err := run("../..", version, proxy); err != nil {
		t.Fatal(err)
	}
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	others, err := exec.Command("go", "env", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	download := filepath.Join(strings.TrimSpace(string(cache)), "cache", "download")
	return &user{t: t, dry: os.Getenv("SETPOINT_FULL") == "", env: append(os.Environ(),
		"GOPROXY="+fileURL(proxy)+","+fileURL(download)+","+strings.TrimSpace(string(others)),
		"GOMODCACHE="+t.TempDir(), "GOBIN="+t.TempDir(),
		"GOSUMDB=off", "GOFLAGS=-trimpath -modcacherw", "GOWORK=off", "CGO_ENABLED=0")}
}

func fileURL(dir string) string { return "file:///" + strings.TrimPrefix(filepath.ToSlash(dir), "/") }

func (u *user) run(dir, name string, args ...string) string {
	u.t.Helper()
	cmd := exec.CommandContext(u.t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, u.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		text := string(out)
		u.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, text[max(0, len(text)-4000):])
	}
	return string(out)
}

// build runs go build or go install, if the tests are not to be short with -n.
func (u *user) build(dir, verb string, args ...string) {
	u.t.Helper()
	flags := []string{verb}
	if u.dry {
		flags = append(flags, "-n")
	}
	u.run(dir, "go", append(flags, args...)...)
}

// TestRelease_CanBeUsed gets the working tree as a released version in directories outside it.
// With SETPOINT_FULL=1 it also compiles.
func TestRelease_CanBeUsed(t *testing.T) {
	u := newUser(t)
	t.Run("docs/first-controller.md, up to its test", func(t *testing.T) {
		u, dir := u.in(t), t.TempDir()
		copyFile(t, "../../examples/hello/main.go", filepath.Join(dir, "main.go"))
		copyFile(t, "../../examples/hello/main_test.go", filepath.Join(dir, "main_test.go"))
		u.run(dir, "go", "mod", "init", "example.com/hello")
		u.run(dir, "go", "get", modules.Library+"@"+version)
		u.run(dir, "go", "mod", "tidy")
		u.build(dir, "vet", ".")
	})
	t.Run("a module imports the other libraries", func(t *testing.T) {
		u, dir := u.in(t), t.TempDir()
		text := "package main\n\nimport (\n\t_ \"" + modules.Library + "/tracing\"\n\t_ \"" + modules.Library + "/envtest/sim/crd\"\n)\n\nfunc main() {}\n"
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		u.run(dir, "go", "mod", "init", "example.com/traced")
		u.run(dir, "go", "get", modules.Library+"/tracing@"+version, modules.Library+"/envtest/sim/crd@"+version)
		u.run(dir, "go", "mod", "tidy")
		u.build(dir, "build", "./...")
	})
	t.Run("a copy of the template runs in its image", func(t *testing.T) {
		u, dir := u.in(t), t.TempDir()
		files, err := sources("../../examples/template")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			copyFile(t, filepath.Join("../../examples/template", f.Path()), filepath.Join(dir, f.Path()))
		}
		u.run(dir, "go", "mod", "tidy")
		image := t.TempDir() // as in its Dockerfile, from scratch
		u.build(dir, "build", "-ldflags=-s", "-o", filepath.Join(image, "operator"), ".")
		if !u.dry {
			runIn(t, image, "/operator", "-help")
		}
	})
	for _, program := range []string{"cmd/setpoint", "cmd/setpoint-vet", "cmd/kubectl-setpoint", "examples/website", "envtest/controlplane"} {
		t.Run("go install "+program, func(t *testing.T) {
			u := u.in(t)
			if program == "envtest/controlplane" {
				if u.dry {
					t.Skip("unpacking its modules takes half a minute; set SETPOINT_FULL=1")
				}
				u.dry = true // the tests of envtest compile it
			}
			u.build(t.TempDir(), "install", modules.Library+"/"+program+"@"+version)
		})
	}
}

func (u *user) in(t *testing.T) *user { return &user{t, u.env, u.dry} }

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
