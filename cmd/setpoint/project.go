// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/modfile"
)

// project is a project that the command new has made, perhaps changed by its user.
type project struct {
	names

	dir string
	api string // the directory of the version that the controllers use, such as api/v1alpha1
}

var (
	operatorName = regexp.MustCompile(`(?m)^const name = "([^"]+)"$`)
	generates    = regexp.MustCompile(`(?m)^//go:generate .*controller-gen`)
	groupName    = regexp.MustCompile(`(?m)^// \+groupName=(\S+)$`)
)

// open reads the names of the project in a directory.
func open(dir string) (*project, error) {
	p := namesIn(dir)
	if p == nil {
		above, err := projectOf(dir)
		if err != nil {
			return nil, err
		}
		if above != nil {
			return nil, fmt.Errorf("this directory is below the top of the project %s; run 'cd %s' first", above.name, above.dir)
		}
		return nil, noProject(dir)
	}
	apis, err := filepath.Glob(filepath.Join(dir, "api", "*", "doc.go"))
	if err != nil {
		return nil, err
	}
	var doc []byte
	for _, api := range apis {
		text, err := os.ReadFile(api)
		if err != nil {
			return nil, err
		}
		if generates.Match(text) {
			if doc != nil {
				return nil, fmt.Errorf("api/%s/doc.go and %s both run controller-gen; leave the line in the version that the controllers use", p.version, api)
			}
			doc, p.version = text, filepath.Base(filepath.Dir(api))
		}
	}
	if doc == nil {
		return nil, errors.New("no api/*/doc.go has a line '//go:generate … controller-gen …', which shows the version that the controllers use; put it back")
	}
	p.api = path.Join("api", p.version)
	group := groupName.FindSubmatch(doc)
	if group == nil {
		return nil, fmt.Errorf("%s/doc.go has no line '// +groupName=GROUP'; add it", p.api)
	}
	p.group = string(group[1])
	return p, nil
}

// noProject returns an error with the first file or line that a directory lacks.
func noProject(dir string) error {
	for _, file := range []string{"go.mod", "operator.go"} {
		if _, err := os.ReadFile(filepath.Join(dir, file)); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("this directory has no %s; run it at the top of a project that 'setpoint new' has made", file)
		} else if err != nil {
			return err
		}
	}
	return errors.New(`operator.go has no line 'const name = "…"' with the operator's name; put it back`)
}

// namesIn returns a project with its module and name, or nil if the directory has none.
func namesIn(dir string) *project {
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	operator, missing := os.ReadFile(filepath.Join(dir, "operator.go"))
	name := operatorName.FindSubmatch(operator)
	if err != nil || missing != nil || name == nil {
		return nil
	}
	return &project{dir: dir, names: names{module: modfile.ModulePath(mod), name: string(name[1])}}
}

// projectOf returns the project that a directory belongs to, or nil. The path of the project is
// relative to the directory.
func projectOf(dir string) (*project, error) {
	from, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for at := from; ; at = filepath.Dir(at) {
		if p := namesIn(at); p != nil {
			p.dir, err = filepath.Rel(from, at)
			return p, err
		}
		if at == filepath.Dir(at) {
			return nil, nil
		}
	}
}

// committed returns an error if git knows of changes that are not committed.
func (p *project) committed(ctx context.Context) error {
	out, err := run(ctx, p.dir, "git", "status", "--porcelain", ".")
	if err == nil && out != "" {
		return errors.New("the directory has changes that are not committed; commit them first, so that you can see what is added and undo it")
	}
	return nil // or it is not in git
}

// read returns the files of the project, without those that git and editors keep.
func (p *project) read() (files, error) {
	all := files{}
	err := filepath.WalkDir(p.dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && name != p.dir {
			return filepath.SkipDir
		}
		if !d.Type().IsRegular() {
			return nil
		}
		rel, err := filepath.Rel(p.dir, name)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(name)
		all[filepath.ToSlash(rel)] = string(data)
		return err
	})
	return all, err
}

// try generates and vets a copy of the project with other contents, and returns the files of the
// copy that differ from the project's.
func (p *project) try(ctx context.Context, present, wanted files) (changed files, err error) {
	dir, err := os.MkdirTemp("", "setpoint-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := wanted.write(dir); err != nil {
		return nil, err
	}
	for _, args := range [][]string{{"generate", "./..."}, {"vet", "./..."}} {
		if out, err := run(ctx, dir, "go", args...); err != nil {
			if broken := p.compiles(ctx); broken != nil {
				return nil, broken
			}
			out = strings.ReplaceAll(out, dir+string(filepath.Separator), "")
			return nil, fmt.Errorf("go %s fails in a copy of the project, so nothing was changed: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	after, err := (&project{dir: dir}).read()
	if err != nil {
		return nil, err
	}
	changed = files{}
	for name, text := range after {
		if before, ok := present[name]; !ok || before != text {
			changed[name] = text
		}
	}
	return changed, nil
}

// compiles returns the errors of the compiler for the project as it is. go vet compiles the tests.
func (p *project) compiles(ctx context.Context) error {
	for _, args := range [][]string{{"build", "-o", os.DevNull, "./..."}, {"vet", "./..."}} {
		out, err := run(ctx, p.dir, "go", args...)
		_, lines, packages := strings.Cut("\n"+out, "\n# ") // go names a package above its errors
		if err != nil && packages && (args[0] == "build" || strings.Contains(lines, "\nvet: ")) {
			return fmt.Errorf("the project does not compile; mend this first:\n# %s", lines)
		}
	}
	return nil // or a module is missing
}

// run runs a command and returns what it prints.
func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return strings.TrimSpace(out.String()), err
}
