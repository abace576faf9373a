// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Program modproxy creates a Go module proxy from files of the working tree. With it you can try an
// unreleased version as a user who requires Setpoint by version. In tools:
//
//	go run ./modproxy -version v0.1.0 -out /tmp/proxy
//
// Then, in any other module, with an empty GOMODCACHE (where a version never changes):
//
//	export GOPROXY=file:///tmp/proxy,https://proxy.golang.org GONOSUMDB=github.com/setpoint-dev/*
//	go get github.com/setpoint-dev/setpoint@v0.1.0
//
// Its test does that for each released module. With SETPOINT_FULL=1 it also compiles them.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/setpoint-dev/setpoint/tools/internal/modules"
)

func main() {
	root := flag.String("root", "..", "`directory` of the working tree")
	version := flag.String("version", "v0.1.0", "the `version` of the modules")
	out := flag.String("out", "", "the `directory` of the proxy, which is created")
	flag.Parse()
	if err := run(*root, *version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "modproxy:", err)
		os.Exit(1)
	}
}

func run(root, version, out string) error {
	if out == "" || flag.NArg() > 0 {
		return errors.New("usage: modproxy [-root <working tree>] [-version v0.1.0] -out <directory>")
	}
	for _, dir := range modules.Published() {
		if err := publish(filepath.Join(root, dir), version, out); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return nil
}

// publish writes the four files from which a proxy serves one version of a module.
func publish(dir, version, out string) error {
	gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	m := module.Version{Path: modfile.ModulePath(gomod), Version: version}
	if err := module.Check(m.Path, m.Version); err != nil {
		return err
	}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Now().UTC()})
	if err != nil {
		return err
	}
	versions := filepath.Join(out, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		return err
	}
	base := filepath.Join(versions, version)
	return errors.Join(
		os.WriteFile(filepath.Join(versions, "list"), []byte(version+"\n"), 0o644),
		os.WriteFile(base+".info", info, 0o644),
		os.WriteFile(base+".mod", gomod, 0o644),
		writeZip(base+".zip", m, dir),
	)
}

func writeZip(path string, m module.Version, dir string) error {
	files, err := sources(dir)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(zip.Create(f, m, files), f.Close()) // Create omits nested modules
}

// sources returns the files below dir that git tracks or would add.
func sources(dir string) ([]zip.File, error) {
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	list.Dir = dir
	list.Stderr = os.Stderr
	names, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	var files []zip.File
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		// git lists deleted files until the commit.
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			files = append(files, source{dir, name})
		}
	}
	return files, nil
}

// source is a file of the working tree.
type source struct{ dir, name string }

func (s source) Path() string                 { return s.name }
func (s source) Lstat() (os.FileInfo, error)  { return os.Lstat(filepath.Join(s.dir, s.name)) }
func (s source) Open() (io.ReadCloser, error) { return os.Open(filepath.Join(s.dir, s.name)) }
