// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"fmt"
	"go/build"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Code is the Go code of a repository, without tests. It reads each package once.
type Code struct {
	root     string
	packages map[string][]*source // by folder
}

// NewCode returns the code below a folder.
func NewCode(root string) Code { return Code{root, map[string][]*source{}} }

// A Mutant is the code of the changed files.
type Mutant struct {
	Files   map[string]string // by name
	Drifted bool              // code of a change has moved, or only resembles it
}

// Apply returns the code with the changes, in their order.
func (c Code) Apply(changes []Change) (Mutant, error) {
	m := Mutant{Files: map[string]string{}}
	for _, ch := range changes {
		p, err := c.find(ch)
		if err != nil {
			return Mutant{}, fmt.Errorf("%s in %s %w: %s", ch.Decl, ch.Dir, err, ch.Old[0])
		}
		from, to := p.offsets()
		s, err := parseSource(p.in.name, p.in.text[:from]+p.text+p.in.text[to:])
		if err != nil {
			return Mutant{}, fmt.Errorf("the changed code does not parse: %w", err)
		}
		dir := path.Dir(s.name)
		before := c.packages[dir]
		defer func() { c.packages[dir] = before }()
		c.packages[dir] = slices.Clone(before) // the next change sees this one
		c.packages[dir][slices.Index(before, p.in)] = s
		m.Files[s.name] = s.text
		m.Drifted = m.Drifted || p.drifted
	}
	return m, nil
}

// load returns the files of a package, which may be gone.
func (c Code) load(dir string) ([]*source, error) {
	if loaded, ok := c.packages[dir]; ok {
		return loaded, nil
	}
	names, err := filepath.Glob(filepath.Join(c.root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var sources []*source
	for _, name := range names {
		built, err := build.Default.MatchFile(filepath.Split(name))
		if err != nil {
			return nil, err
		}
		if !built || strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		s, err := parseSource(path.Join(dir, filepath.Base(name)), string(text))
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	c.packages[dir] = sources
	return sources, nil
}

// Dirs returns all folders of the repository.
func (c Code) Dirs() ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(c.root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		if base := e.Name(); name != c.root && (base[0] == '.' || base[0] == '_' || base == "testdata") {
			return fs.SkipDir
		}
		dir, err := filepath.Rel(c.root, name)
		dirs = append(dirs, filepath.ToSlash(dir))
		return err
	})
	return dirs, err
}
