// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// code is the Go code of a repository, without tests. It reads each package once.
type code struct {
	root     string
	packages map[string][]source // by folder
}

// A source is a file.
type source struct {
	name  string // relative to the root
	text  string
	decls []decl
}

// A decl is a declaration at the top level of a file.
type decl struct {
	names  []string // such as "take" or "core.take"
	tokens []lexeme
}

// A lexeme is a token with its place in the file.
type lexeme struct {
	text     string
	from, to int
}

// enoughTokens identify a piece of code in another function.
const enoughTokens = 4

func newCode(root string) code { return code{root, map[string][]source{}} }

// apply returns the changed files by name.
func (c code) apply(changes []change) (map[string]string, error) {
	c.packages = maps.Clone(c.packages) // a change sees the ones before it
	files := map[string]string{}
	for _, ch := range changes {
		s, _, found, err := c.find(ch)
		if err != nil {
			return nil, err
		}
		text := s.text[:found[0].from] + strings.Join(ch.new, "\n") + s.text[found[len(found)-1].to:]
		mutant, err := parseSource(s.name, text)
		if err != nil {
			return nil, fmt.Errorf("the changed code does not parse: %w", err)
		}
		files[s.name] = text
		dir := path.Dir(s.name)
		others := slices.DeleteFunc(slices.Clone(c.packages[dir]), func(o source) bool { return o.name == s.name })
		c.packages[dir] = append(others, mutant)
	}
	return files, nil
}

// find returns the tokens that a change replaces. It looks in the declarations that the change
// names. If their code has moved, it looks in functions of the same name with another receiver, in
// the whole package, and then in functions of the same name in other packages.
func (c code) find(ch change) (in source, of decl, found []lexeme, err error) {
	want := lexemes(strings.Join(ch.old, "\n"))
	if len(want) == 0 {
		return in, of, nil, fmt.Errorf("%s in %s: no code to replace", ch.decl, ch.dir)
	}
	times := 0
	look := func(dir string, has func(name string) bool) {
		sources, loadErr := c.load(dir)
		err = errors.Join(err, loadErr)
		for _, s := range sources {
			for _, d := range s.decls {
				for i := range d.tokens {
					if rest := d.tokens[i:]; startsWith(rest, want) && slices.ContainsFunc(d.names, has) {
						in, of, found = s, d, rest[:len(want)]
						times++
					}
				}
			}
		}
	}
	look(ch.dir, func(name string) bool { return name == ch.decl })
	if times == 0 {
		look(ch.dir, func(name string) bool { return method(name) == method(ch.decl) })
	}
	if times == 0 && len(want) >= enoughTokens {
		look(ch.dir, func(string) bool { return true })
	}
	if times == 0 {
		dirs, walkErr := c.dirs()
		err = errors.Join(err, walkErr)
		for _, dir := range dirs {
			look(dir, func(name string) bool { return strings.EqualFold(method(name), method(ch.decl)) })
		}
	}
	if err == nil && times != 1 {
		err = fmt.Errorf("%s in %s has the code to replace %d times, not once: %s", ch.decl, ch.dir, times, ch.old[0])
	}
	return in, of, found, err
}

// method returns "take" of "core.take".
func method(name string) string { return name[strings.LastIndex(name, ".")+1:] }

func startsWith(all, want []lexeme) bool {
	return len(all) >= len(want) && slices.EqualFunc(all[:len(want)], want, same)
}

func same(a, b lexeme) bool { return a.text == b.text }

// load returns the files of a package, which may be gone.
func (c code) load(dir string) ([]source, error) {
	if loaded, ok := c.packages[dir]; ok {
		return loaded, nil
	}
	names, err := filepath.Glob(filepath.Join(c.root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var sources []source
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

func parseSource(name, text string) (source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	s := source{name: name, text: text}
	all := lexemes(text)
	add := func(n ast.Node, names ...string) {
		from, to := fset.Position(n.Pos()).Offset, fset.Position(n.End()).Offset
		i := slices.IndexFunc(all, func(l lexeme) bool { return l.from >= from })
		j := slices.IndexFunc(all, func(l lexeme) bool { return l.from >= to })
		if j < 0 {
			j = len(all)
		}
		s.decls = append(s.decls, decl{names, all[i:j]})
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(d, functionName(d))
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				node := ast.Node(d)
				if d.Lparen.IsValid() {
					node = spec
				}
				add(node, specNames(spec)...)
			}
		}
	}
	return s, nil
}

// functionName returns "take", or "core.take" for a method of core[K] or *core[K].
func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	for {
		switch of := t.(type) {
		case *ast.StarExpr:
			t = of.X
		case *ast.IndexExpr:
			t = of.X
		case *ast.IndexListExpr:
			t = of.X
		case *ast.Ident:
			return of.Name + "." + d.Name.Name
		default:
			return d.Name.Name
		}
	}
}

func specNames(spec ast.Spec) []string {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		return []string{s.Name.Name}
	case *ast.ValueSpec:
		var names []string
		for _, n := range s.Names {
			names = append(names, n.Name)
		}
		return names
	}
	return []string{"import"}
}

// lexemes returns the tokens of Go code without those that depend on line breaks: semicolons at
// line ends, and commas before a closing bracket.
func lexemes(text string) []lexeme {
	var all []lexeme
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), func(token.Position, string) {}, 0)
	for {
		pos, tok, lit := s.Scan()
		switch {
		case tok == token.EOF:
			return all
		case tok == token.SEMICOLON && lit == "\n":
			continue
		case tok == token.RPAREN, tok == token.RBRACE, tok == token.RBRACK:
			if n := len(all); n > 0 && all[n-1].text == "," {
				all = all[:n-1]
			}
		}
		if !tok.IsLiteral() && !tok.IsKeyword() || lit == "" {
			lit = tok.String()
		}
		from := file.Offset(pos)
		all = append(all, lexeme{lit, from, from + len(lit)})
	}
}
