// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package api lists the exported declarations of packages, one a line, so that a reviewer reads a
// change of the API as a diff of text. Go's own api/*.txt files do the same. The files differ from
// apidiff in one point: a changed or removed line counts as incompatible, and an added one never
// does. Therefore an interface has a line with the names of its methods, and parameters have no
// names.
package api

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// A Baseline has the lines of each package, by the folder of the package relative to the
// repository.
type Baseline map[string][]string

// Load reads the public packages of the modules in dirs, which are relative to root. It checks the
// types of what they import from source, so that it needs no compiled packages.
func Load(ctx context.Context, root string, dirs []string) (Baseline, error) {
	found := Baseline{}
	for _, dir := range dirs {
		config := packages.Config{
			Context: ctx,
			Dir:     filepath.Join(root, dir),
			Env:     append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0"),
			Mode:    packages.NeedName | packages.NeedModule,
		}
		listed, err := packages.Load(&config, "./...")
		if err != nil {
			return nil, fmt.Errorf("api: list the packages of %s: %w", dir, err)
		}
		byPath := map[string]string{}
		for _, l := range listed {
			if l.Module == nil {
				return nil, fmt.Errorf("api: list the packages of %s: %v", dir, l.Errors)
			}
			name := filepath.ToSlash(filepath.Join(dir, strings.TrimPrefix(l.PkgPath, l.Module.Path)))
			if l.Name != "main" && public(name) {
				byPath[l.PkgPath] = name
			}
		}
		config.ParseFile = parseDeclarations
		config.Mode |= packages.NeedImports | packages.NeedDeps | packages.NeedSyntax | packages.NeedTypes
		loaded, err := packages.Load(&config, slices.Sorted(maps.Keys(byPath))...)
		if err != nil {
			return nil, fmt.Errorf("api: load the packages of %s: %w", dir, err)
		}
		for _, l := range loaded {
			for _, e := range l.Errors {
				if !unusedImport.MatchString(e.Msg) { // its use is in a body
					return nil, fmt.Errorf("api: %s does not compile: %w", l.PkgPath, e)
				}
			}
			if lines := describe(l.Types); len(lines) > 0 {
				found[byPath[l.PkgPath]] = lines
			}
		}
	}
	return found, nil
}

var unusedImport = regexp.MustCompile(`imported (as \w+ )?and not used$`)

// parseDeclarations replaces the bodies of functions, which take most of the time to check.
func parseDeclarations(fset *token.FileSet, name string, text []byte) (*ast.File, error) {
	f, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		return f, err
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			forever := &ast.ForStmt{For: fn.Body.Lbrace, Body: &ast.BlockStmt{}} // needs no return
			fn.Body.List = []ast.Stmt{forever}
		}
	}
	return f, nil
}

// public reports whether code outside the repository can import the package, and should.
func public(name string) bool {
	return !strings.Contains("/"+name+"/", "/internal/") && !strings.HasPrefix(name, "examples/")
}
