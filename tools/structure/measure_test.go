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
