// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	"sort"
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
	node   ast.Node
	offset func(token.Pos) int
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
		p, err := c.find(ch)
		if err != nil {
			return nil, err
		}
		s := p.in
		text := s.text[:p.from] + p.text + s.text[p.to:]
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

// A place is the code that a change replaces, and the new code.
type place struct {
	in       source
	from, to int
	text     string
}

// A scope is a set of declarations that may have the code of a change.
type scope struct {
	dir   string // empty: all
	has   func(name string) bool
	least int     // number of tokens that a piece must have
	alike float64 // similarity that code must have
}

// find returns the only place of a change's code. It looks in the declarations that the change
// names. If the code has moved, it looks in functions of the same name with another receiver, in
// the whole package, and then in functions of the same name in other packages. If the code is
// nowhere, it looks in the same order for code that has drifted.
func (c code) find(ch change) (place, error) {
	text := strings.Join(ch.new, "\n")
	piece := strings.Join(ch.old, "\n")
	want := lexemes(piece)
	if len(want) == 0 {
		return place{}, fmt.Errorf("%s in %s: no code to replace", ch.decl, ch.dir)
	}
	scopes := []scope{
		{ch.dir, func(name string) bool { return name == ch.decl }, 1, alike},
		{ch.dir, func(name string) bool { return method(name) == method(ch.decl) }, 1, alike},
		{ch.dir, func(string) bool { return true }, enoughTokens, veryAlike},
		{"", func(name string) bool { return strings.EqualFold(method(name), method(ch.decl)) }, 1, alike},
	}
	for i, sc := range scopes {
		found, err := c.exact(sc, want)
		if err != nil {
			return place{}, err
		}
		if len(found) == 1 {
			found[0].text = text
			return found[0], nil
		}
		if len(found) > 1 && i == 0 {
			return place{}, fmt.Errorf("%s in %s has the code to replace %d times, not once: %s", ch.decl, ch.dir, len(found), ch.old[0])
		}
	}
	for _, sc := range scopes {
		if found, ok := c.similar(sc, want, piece, text); ok {
			return found, nil
		}
	}
	return place{}, fmt.Errorf("%s in %s has the code to replace 0 times, not once: %s", ch.decl, ch.dir, ch.old[0])
}

// exact returns all places of a piece in a scope.
func (c code) exact(sc scope, want []lexeme) (found []place, err error) {
	if len(want) < sc.least {
		return nil, nil
	}
	err = c.each(sc, func(s source, d decl) {
		for i := range d.tokens {
			if rest := d.tokens[i:]; startsWith(rest, want) {
				found = append(found, place{in: s, from: rest[0].from, to: rest[len(want)-1].to})
			}
		}
	})
	return found, err
}

// each calls f for the declarations of a scope.
func (c code) each(sc scope, f func(source, decl)) error {
	dirs := []string{sc.dir}
	if sc.dir == "" {
		var err error
		if dirs, err = c.dirs(); err != nil {
			return err
		}
	}
	for _, dir := range dirs {
		sources, err := c.load(dir)
		if err != nil {
			return err
		}
		for _, s := range sources {
			for _, d := range s.decls {
				if slices.ContainsFunc(d.names, sc.has) {
					f(s, d)
				}
			}
		}
	}
	return nil
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
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	add := func(n ast.Node, names ...string) {
		s.decls = append(s.decls, decl{names, between(all, offset(n.Pos()), offset(n.End())), n, offset})
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

// between returns the tokens in a range of the text.
func between(all []lexeme, from, to int) []lexeme {
	i := sort.Search(len(all), func(i int) bool { return all[i].from >= from })
	j := sort.Search(len(all), func(j int) bool { return all[j].from >= to })
	return all[i:max(i, j)]
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
