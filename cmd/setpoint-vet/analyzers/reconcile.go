// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package analyzers

import (
	"go/ast"
	"go/token"
	"go/types"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/buildssa"
	"golang.org/x/tools/go/ssa"
)

// reconcileFinder finds the Reconciles of a package for the other analyzers.
var reconcileFinder = &analysis.Analyzer{
	Name:       "reconciles",
	Doc:        "find the Reconciles of a package and the functions that they call",
	Requires:   []*analysis.Analyzer{buildssa.Analyzer},
	ResultType: reflect.TypeFor[*reconciles](),
	Run:        func(pass *analysis.Pass) (any, error) { return findReconciles(pass), nil },
}

// reconciles are the Reconciles of a package.
type reconciles struct {
	pkg *ssa.Package
	// all has every function of the package, with literals.
	all []*ssa.Function
	// roots are the Reconciles and the like, and parts these and the functions that they call.
	roots []*ssa.Function
	parts map[*ssa.Function]bool
	// calls has the syntax of a call by its opening parenthesis, which is the position of its
	// instruction.
	calls map[token.Pos]*ast.CallExpr
}

func findReconciles(pass *analysis.Pass) *reconciles {
	built, _ := pass.ResultOf[buildssa.Analyzer].(*buildssa.SSA)
	r := &reconciles{
		pkg: built.Pkg, all: slices.Clone(built.SrcFuncs),
		parts: map[*ssa.Function]bool{}, calls: map[token.Pos]*ast.CallExpr{},
	}
	var add func(f *ssa.Function)
	add = func(f *ssa.Function) { // the literals of package variables
		r.all = append(r.all, f)
		for _, literal := range f.AnonFuncs {
			add(literal)
		}
	}
	add(built.Pkg.Func("init"))
	for _, file := range pass.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				r.calls[call.Lparen] = call
			}
			return true
		})
	}
	for _, f := range r.all {
		if returnsResult(f.Signature) {
			r.roots = append(r.roots, f)
		}
	}
	for _, root := range r.roots {
		for f := range r.reachable(root) {
			r.parts[f] = true
		}
	}
	return r
}

// reachable returns f, its literals, and the functions of the package that these call by name.
func (r *reconciles) reachable(f *ssa.Function) map[*ssa.Function]bool {
	found := map[*ssa.Function]bool{}
	var visit func(f *ssa.Function)
	visit = func(f *ssa.Function) {
		if f == nil || found[f] {
			return
		}
		found[f] = true
		for _, literal := range f.AnonFuncs {
			visit(literal)
		}
		for i := range instructions(f) {
			if c, ok := i.(ssa.CallInstruction); ok {
				visit(r.local(c.Common().StaticCallee()))
			}
		}
	}
	visit(f)
	return found
}

// local returns the function of this package behind a callee, or nil.
func (r *reconciles) local(f *ssa.Function) *ssa.Function {
	if f == nil {
		return nil
	}
	if generic := f.Origin(); generic != nil {
		f = generic
	}
	if f.Pkg != r.pkg || f.Blocks == nil {
		return nil
	}
	return f
}

// functionOf returns the function of this package that a value is: a function, a literal, or a
// method with its receiver. Otherwise it returns nil.
func (r *reconciles) functionOf(v ssa.Value) *ssa.Function {
	if c, ok := v.(*ssa.MakeClosure); ok {
		v = c.Fn
	}
	f, ok := v.(*ssa.Function)
	if !ok {
		return nil
	}
	if strings.HasPrefix(f.Synthetic, "bound method wrapper") {
		method, _ := f.Object().(*types.Func)
		return r.local(r.pkg.Prog.FuncValue(method))
	}
	return r.local(f)
}

// returnsResult reports whether a function has a context and the results of a Reconcile, as a part
// of one has that decides about the result.
func returnsResult(s *types.Signature) bool {
	if s.Params().Len() == 0 || !isContext(s.Params().At(0).Type()) || s.Results().Len() != 2 {
		return false
	}
	result := typeName(s.Results().At(0).Type())
	return result == setpoint+"controller.Result" || result == runtimeReconcile+"Result"
}
