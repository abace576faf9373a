// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/setpoint-dev/setpoint/tools/internal/child"
)

// library is the module path of the library.
const library = "github.com/setpoint-dev/setpoint"

// A pkg is a package with tests.
type pkg struct {
	name string // relative to the root
	dir  string
	env  []string // GOWORK, as make test sets it
	// cluster means that its tests start a control plane.
	cluster bool
}

// list returns the packages with tests, of the library, e2e and the examples.
func (o *options) list(ctx context.Context, tmp string) ([]pkg, error) {
	all, err := o.module(ctx, tmp, o.root, "GOWORK=off")
	for _, group := range []struct{ modules, work string }{{"e2e", "GOWORK=off"}, {"examples/*", "GOWORK="}} {
		modules, globErr := filepath.Glob(filepath.Join(o.root, group.modules, "go.mod"))
		err = errors.Join(err, globErr)
		for _, m := range modules {
			more, moreErr := o.module(ctx, tmp, filepath.Dir(m), group.work)
			all, err = append(all, more...), errors.Join(err, moreErr)
		}
	}
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no package with tests matches %q", o.packages)
	}
	return all, err
}

func (o *options) module(ctx context.Context, tmp, dir, work string) ([]pkg, error) {
	cmd := child.Command(ctx, dir, tmp, []string{work}, "go", "list", "-test", "-json=Name,ImportPath,Dir,Deps", "./...")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w\n%s", dir, err, stderr.String())
	}
	var found []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			Name, ImportPath, Dir string
			Deps                  []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list in %s: %w", dir, err)
		}
		path, isTest := strings.CutSuffix(p.ImportPath, ".test")
		name := "." + strings.TrimPrefix(path, library)
		if p.Name != "main" || !isTest || !o.packages.MatchString(name) {
			continue
		}
		cluster := slices.ContainsFunc(p.Deps, func(d string) bool {
			d, _, _ = strings.Cut(d, " ") // a package compiled for a test is "path [test]"
			return d == library+"/envtest"
		})
		found = append(found, pkg{name, p.Dir, []string{work}, cluster})
	}
}

// build compiles the tests of a package into the file.
func (p *pkg) build(ctx context.Context, tmp, file string, race bool) error {
	args := []string{"test", "-c", "-vet=off", "-ldflags=-w", "-o", file}
	if race {
		args = append(args, "-race")
	}
	out, err := child.Command(ctx, p.dir, tmp, p.env, "go", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building the tests of %s: %w\n%s", p.name, err, out)
	}
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("building the tests of %s: %w", p.name, err)
	}
	return nil
}
