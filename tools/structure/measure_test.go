// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"testing"

	"golang.org/x/tools/go/packages"
)

const methods = `package x

import "sync"

type A struct { hidden; *B; sync.Mutex } // Own and Hidden; B counts Shared, package sync the rest

func (A) Own() {}
func (A) own() {}

type hidden struct{}

func (*hidden) Hidden() {}

type B struct{}

func (B) Shared() {}

type I interface{ Asked() }

type unexported struct{}

func (unexported) Free() {}
`

func TestCountExported(t *testing.T) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "x.go", methods, 0)
	if err != nil {
		t.Fatal(err)
	}
	config := types.Config{Importer: importer.ForCompiler(set, "source", nil)}
	of, err := config.Check("x", set, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &pkg{}
	for _, name := range of.Scope().Names() {
		if tn, ok := of.Scope().Lookup(name).(*types.TypeName); ok {
			if named, ok := tn.Type().(*types.Named); ok {
				p.countExported(tn, named)
			}
		}
	}
	if p.exported != 3 {
		t.Errorf("%d exported methods, want Own, Hidden and Shared", p.exported)
	}
}

const fields = `package x

type work func()

type A struct {
	a, b func(int) error
	c    work
	d    int
	e    struct{ f func() }
	m    map[string]func()
}

func local() { _ = struct{ g func() }{} }
`

func TestCountFuncs(t *testing.T) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "x.go", fields, 0)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	if _, err := (&types.Config{}).Check("x", set, []*ast.File{file}, info); err != nil {
		t.Fatal(err)
	}
	p := &pkg{}
	if p.countFuncs(file, info); p.funcs != 5 {
		t.Errorf("%d fields, want a, b, c, f and g", p.funcs)
	}
}

func TestLinkedBy(t *testing.T) {
	of := func(path string, imports ...string) *packages.Package {
		p := &packages.Package{PkgPath: path, Imports: map[string]*packages.Package{}}
		for _, i := range imports {
			p.Imports[i] = nil
		}
		return p
	}
	links := linkedBy([]*packages.Package{of("hello", "a", "fmt"), of("a", "b"), of("b", "a"), of("c", "a")}, "hello")
	if len(links) != 3 || !links["a"] || !links["b"] || links["c"] {
		t.Errorf("hello links %v", links)
	}
}
