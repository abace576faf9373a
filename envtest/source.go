// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	gobuild "go/build"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
)

const modulePath = "github.com/setpoint-dev/setpoint"

const programPath = modulePath + "/envtest/controlplane"

// source is a directory or a version on the module proxy, and the Kubernetes to build with it.
type source struct {
	dir     string
	version string
	release release
}

// key identifies the contents of the source. A published version never changes. The requirements of
// other releases do not count.
func (s source) key() (string, error) {
	if s.dir == "" {
		return s.version, nil
	}
	files, err := filepath.Glob(filepath.Join(s.dir, "*"))
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range files {
		base := filepath.Base(name)
		if !s.release.uses(s.dir, base) {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, base)
		_, err = io.Copy(sum, f)
		f.Close()
		if err != nil {
			return "", err
		}
	}
	return "src-" + hex.EncodeToString(sum.Sum(nil))[:16], nil
}

// uses reports whether a build of the release reads the file in the source's directory.
func (r release) uses(dir, file string) bool {
	if filepath.Ext(file) != ".go" {
		return file == r.requirements()+".mod" || file == r.requirements()+".sum"
	}
	with := gobuild.Default
	with.BuildTags, with.CgoEnabled = []string{r.tag()}, false
	match, err := with.MatchFile(dir, file)
	return (match || err != nil) && !strings.HasSuffix(file, "_test.go") // the compiler reports err
}

// findSource determines which setpoint module this program was compiled from: its working tree, a
// workspace, a replacement or a published version.
func findSource(ctx context.Context) (source, error) {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) { // relative with -trimpath
		if s, ok := sourceIn(filepath.Dir(filepath.Dir(file))); ok {
			return s, nil
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		if v := versionIn(info); v != "" {
			return source{version: v}, nil
		}
	}
	return listSource(ctx)
}

// sourceIn finds no program in the module cache.
func sourceIn(module string) (source, bool) {
	dir := filepath.Join(module, "envtest", "controlplane")
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return source{dir: dir}, err == nil
}

func versionIn(info *debug.BuildInfo) string {
	for _, m := range info.Deps {
		if m.Path != modulePath {
			continue
		}
		if m.Replace != nil && m.Replace.Path != modulePath {
			return "" // a directory, or a fork
		}
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Version == "(devel)" {
			return ""
		}
		return m.Version
	}
	return ""
}

func listSource(ctx context.Context) (source, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-json", modulePath)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return source{}, errNoGo
	}
	var module struct {
		Dir, Version string
		Replace      *struct{ Path, Dir, Version string }
	}
	if err == nil {
		err = json.Unmarshal(out, &module)
	}
	if err != nil {
		return source{}, fmt.Errorf("envtest: cannot find out which version of %s is in use: %w: %s; run in a module that requires it, or set SETPOINT_CONTROLPLANE to the control plane program",
			modulePath, err, strings.TrimSpace(stderr.String()))
	}
	dir, version := module.Dir, module.Version
	if r := module.Replace; r != nil {
		dir, version = r.Dir, r.Version
	}
	if s, ok := sourceIn(dir); ok {
		return s, nil
	}
	if version == "" {
		return source{}, fmt.Errorf("envtest: %s has no directory envtest/controlplane; replace %s by a whole working tree, or set SETPOINT_CONTROLPLANE to the control plane program", dir, modulePath)
	}
	return source{version: version}, nil
}
