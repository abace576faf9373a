// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"slices"
	"strings"
)

// A place is the code that a change replaces, and the new code.
type place struct {
	node
	text    string
	drifted bool
}

// A scope is a set of declarations that may have the code of a change.
type scope struct {
	dir   string // empty: all
	has   func(name string) bool
	least int     // number of tokens that a piece must have
	alike float64 // similarity that code must have
}

// enoughTokens identify a piece of code in another function.
const enoughTokens = 3

// find returns the only place of a change's code. It looks in the declarations that the change
// names. If the code has moved, it looks in functions of the same name with another receiver, in
// the whole package, and then in functions of the same name in other packages. If the code is
// nowhere, it looks in the same order for code that has drifted.
func (c Code) find(ch Change) (place, error) {
	next := strings.Join(ch.New, "\n")
	want, _ := scan(strings.Join(ch.Old, "\n"))
	if len(want) == 0 {
		return place{}, errors.New("has no code to replace")
	}
	sameMethod := func(name string) bool { return strings.EqualFold(method(name), method(ch.Decl)) }
	scopes := []scope{
		{ch.Dir, func(name string) bool { return name == ch.Decl }, 1, alike},
		{ch.Dir, sameMethod, 1, alike},
		{ch.Dir, func(string) bool { return true }, enoughTokens, veryAlike},
		{"", sameMethod, enoughTokens, alike},
	}
	scopes = slices.DeleteFunc(scopes, func(sc scope) bool { return len(want) < sc.least })
	for i, sc := range scopes {
		var found []node
		err := c.each(sc, func(n, _ node) {
			if slices.Equal(n.tokens(), want) {
				found = append(found, n)
			}
		})
		switch {
		case err != nil:
			return place{}, err
		case len(found) == 1:
			return place{found[0], whole(want, next), i > 0}, nil
		case len(found) > 1 && i == 0:
			return place{}, fmt.Errorf("has the code to replace %d times, not once", len(found))
		}
	}
	d := newDrift(want, next)
	for _, least := range []float64{1, 0} { // names that have become exported come first
		for _, sc := range scopes {
			sc.alike = max(sc.alike, least)
			if p, ok, err := c.similar(sc, d); ok || err != nil {
				return p, err
			}
		}
	}
	return place{}, errors.New("has the code to replace 0 times, not once")
}

// whole returns an expression that replaces another one such that it stays whole.
func whole(before []string, after string) string {
	e, err := parser.ParseExpr(after)
	if _, binary := e.(*ast.BinaryExpr); err == nil && binary && isExpr(before) {
		return "(" + after + ")"
	}
	return after
}

// each calls f for the nodes of a scope, with their declarations.
func (c Code) each(sc scope, f func(n, in node)) error {
	dirs := []string{sc.dir}
	if sc.dir == "" {
		var err error
		if dirs, err = c.Dirs(); err != nil {
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
				if !slices.ContainsFunc(d.names, sc.has) {
					continue
				}
				for _, n := range d.nodes() {
					f(n, d.nodes()[0])
				}
			}
		}
	}
	return nil
}

// method returns "take" of "core.take".
func method(name string) string { return name[strings.LastIndex(name, ".")+1:] }
