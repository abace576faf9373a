// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

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

// code is the Go code of a repository, without tests. It reads each package once.
type code struct {
	root     string
	packages map[string][]*source // by folder
}

func newCode(root string) code { return code{root, map[string][]*source{}} }

// A mutant is the code of the changed files.
type mutant struct {
	files   map[string]string // by name
	drifted bool              // a change matched only code that resembles its piece
}

// apply returns the code with the changes, in their order.
func (c code) apply(changes []change) (mutant, error) {
	m := mutant{files: map[string]string{}}
	for _, ch := range changes {
		p, err := c.find(ch)
		if err != nil {
			return mutant{}, fmt.Errorf("%s in %s %w: %s", ch.decl, ch.dir, err, ch.old[0])
		}
		from, to := p.offsets()
		s, err := parseSource(p.in.name, p.in.text[:from]+p.text+p.in.text[to:])
		if err != nil {
			return mutant{}, fmt.Errorf("the changed code does not parse: %w", err)
		}
		dir := path.Dir(s.name)
		before := c.packages[dir]
		defer func() { c.packages[dir] = before }()
		c.packages[dir] = slices.Clone(before) // the next change sees this one
		c.packages[dir][slices.Index(before, p.in)] = s
		m.files[s.name] = s.text
		m.drifted = m.drifted || p.drifted
	}
	return m, nil
}

// load returns the files of a package, which may be gone.
func (c code) load(dir string) ([]*source, error) {
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

// dirs returns all folders of the repository.
func (c code) dirs() ([]string, error) {
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
