// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
)

// addArguments adds a kind to children.New, unless it is "", and the desired child that a function
// returns to the Reconcile of the children.
func (f files) addArguments(file, kind, function string) error {
	if kind != "" {
		err := f.addArgument(file, "children.New", func(call *ast.CallExpr, _ string) (string, bool) {
			return kind, selects(call.Fun, "children", "New")
		})
		if err != nil {
			return err
		}
	}
	return f.addArgument(file, "r.children.Reconcile", func(call *ast.CallExpr, text string) (string, bool) {
		if !selects(call.Fun, "children", "Reconcile") || len(call.Args) < 2 {
			return "", false
		}
		owner := call.Args[1]
		return function + "(" + text[owner.Pos()-1:owner.End()-1] + ")", true
	})
}

// selects reports whether a function is ….children.New or the like.
func selects(function ast.Expr, of, name string) bool {
	s, ok := function.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	switch x := s.X.(type) {
	case *ast.Ident:
		return x.Name == of
	case *ast.SelectorExpr:
		return x.Sel.Name == of
	}
	return false
}

// addArgument adds an argument to the only call in a file for which the function returns one.
func (f files) addArgument(file, like string, argument func(call *ast.CallExpr, text string) (string, bool)) error {
	text := f[file]
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	var calls []*ast.CallExpr
	var wanted string
	ast.Inspect(parsed, func(node ast.Node) bool {
		if call, ok := node.(*ast.CallExpr); ok {
			if a, ok := argument(call, text); ok {
				calls, wanted = append(calls, call), a
			}
		}
		return true
	})
	if len(calls) != 1 || calls[0].Ellipsis.IsValid() || len(calls[0].Args) == 0 {
		return fmt.Errorf("%s has no single call %s(…) with one argument for each child; add the child by hand, as an argument of children.New and one of r.children.Reconcile", file, like)
	}
	end := calls[0].Args[len(calls[0].Args)-1].End() - 1 // positions count from 1
	formatted, err := format.Source([]byte(text[:end] + ", " + wanted + text[end:]))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	f[file] = string(formatted)
	return nil
}
