// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package analyzers

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ssa"
)

// UndeclaredRead reports a Reconcile that reads a handle of package cache that its controller
// declares neither with Watch nor with Reads, nor as the children of a Set that it watches. The
// first such Reconcile fails. Handles are told apart by the types of their objects only. If not all
// of a controller's declarations can be seen, nothing is reported.
var UndeclaredRead = &analysis.Analyzer{
	Name:     "undeclaredread",
	Doc:      "report reads of handles that the controller neither watches nor declares with Reads",
	URL:      "https://pkg.go.dev/" + setpoint + "cmd/setpoint-vet/analyzers",
	Requires: []*analysis.Analyzer{reconcileFinder},
	Run: func(pass *analysis.Pass) (any, error) {
		r, _ := pass.ResultOf[reconcileFinder].(*reconciles)
		byRoot := map[*ssa.Function]*declarations{}
		for _, f := range r.all {
			for i := range instructions(f) {
				if call, ok := i.(*ssa.Call); ok {
					addController(pass, r, call, byRoot)
				}
			}
		}
		for _, root := range r.roots {
			if d := byRoot[root]; d != nil && !d.hidden {
				d.check(root)
			}
		}
		return nil, nil //nolint:nilnil // an analyzer without a result
	},
}

// declarations are what the controllers of one Reconcile declare.
type declarations struct {
	*reconciles
	pass *analysis.Pass
	// objects has the types of the objects of declared handles.
	objects map[string]bool
	// hidden: there may be declarations that cannot be seen.
	hidden bool
	seen   map[ssa.Value]bool
}

// addController adds the declarations of a controller that a call makes.
func addController(pass *analysis.Pass, r *reconciles, call *ssa.Call, byRoot map[*ssa.Function]*declarations) {
	switch callee(&call.Call) {
	case setpoint + "controller.New", setpoint + "controller.NewWithQueue":
	default:
		return
	}
	root := r.reconcileOf(call.Call.Args[1])
	if root == nil {
		return
	}
	d := byRoot[root]
	if d == nil {
		d = &declarations{reconciles: r, pass: pass, objects: map[string]bool{}, seen: map[ssa.Value]bool{}}
		byRoot[root] = d
	}
	d.follow(call)
}

// reconcileOf returns the Reconcile of a reconciler, or nil if it is not of this package.
func (r *reconciles) reconcileOf(reconciler ssa.Value) *ssa.Function {
	reconciler = unwrap(reconciler)
	if c, ok := reconciler.(*ssa.ChangeType); ok {
		return r.functionOf(c.X)
	}
	method, _, _ := types.LookupFieldOrMethod(reconciler.Type(), true, r.pkg.Pkg, "Reconcile")
	f, ok := method.(*types.Func)
	if !ok {
		return nil
	}
	root := r.local(r.pkg.Prog.FuncValue(f.Origin()))
	if !slices.Contains(r.roots, root) {
		return nil
	}
	return root
}

// follow adds what is declared on a controller.
func (d *declarations) follow(controller ssa.Value) {
	if d.seen[controller] {
		return
	}
	d.seen[controller] = true
	for _, use := range *controller.Referrers() {
		switch use := use.(type) {
		case *ssa.MakeInterface: // for manager.Add
			d.hidden = d.hidden || declares(use.Type())
		case *ssa.Call:
			d.call(use, controller)
		case *ssa.Return:
			d.result(use.Parent())
		case *ssa.Store:
			d.stored(use)
		case *ssa.UnOp, *ssa.FieldAddr, *ssa.DebugRef, *ssa.BinOp:
		default:
			d.hidden = true
		}
	}
}

// declares reports whether a controller can be told to watch or read by an interface.
func declares(t types.Type) bool {
	methods := types.NewMethodSet(t)
	return methods.Lookup(nil, "Watch") != nil || methods.Lookup(nil, "Reads") != nil
}

// stored follows a controller into a local variable. Fields and elements are not followed.
func (d *declarations) stored(s *ssa.Store) {
	if variable, ok := cell(s.Addr).(*ssa.Alloc); ok {
		d.loads(variable)
	} else {
		d.hidden = true
	}
}

func (d *declarations) loads(variable ssa.Value) {
	for _, use := range *variable.Referrers() {
		switch use := use.(type) {
		case *ssa.UnOp:
			d.follow(use)
		case *ssa.MakeClosure:
			f, _ := use.Fn.(*ssa.Function)
			for n, b := range use.Bindings {
				if b == variable {
					d.loads(f.FreeVars[n])
				}
			}
		}
	}
}

// result follows a controller that a function returns, unless other packages can call it.
func (d *declarations) result(f *ssa.Function) {
	if f.Parent() != nil || f.Signature.Results().Len() != 1 || f.Object().Exported() && d.pkg.Pkg.Name() != "main" {
		d.hidden = true
		return
	}
	for _, other := range d.all {
		for i := range instructions(other) {
			call, ok := i.(ssa.CallInstruction)
			switch {
			case ok && d.local(call.Common().StaticCallee()) == f:
				if call.Value() != nil {
					d.follow(call.Value())
				}
			case slices.ContainsFunc(i.Operands(nil), func(v *ssa.Value) bool { return *v == f }):
				d.hidden = true // a function value
			}
		}
	}
}

func (d *declarations) call(call *ssa.Call, controller ssa.Value) {
	name := callee(&call.Call)
	syntax := d.calls[call.Pos()]
	if f := d.local(call.Call.StaticCallee()); f != nil {
		for n, arg := range call.Call.Args {
			if arg == controller {
				d.follow(f.Params[n])
			}
		}
		return
	}
	switch {
	case syntax == nil:
		d.hidden = true
	case name == setpoint+"controller.Controller.Watch":
		d.watch(syntax.Args[0])
	case name == setpoint+"controller.Controller.Reads":
		for _, arg := range syntax.Args {
			d.declare(arg)
		}
	case name == setpoint+"children.Set.Watch":
		d.children()
	case !strings.HasPrefix(name, setpoint):
		d.hidden = true
	}
}

// watch declares what a source reads.
func (d *declarations) watch(source ast.Expr) {
	call, ok := ast.Unparen(source).(*ast.CallExpr)
	if !ok {
		d.hidden = true
		return
	}
	switch f := d.funcOf(call); f {
	case setpoint + "source.Kind":
		d.declare(call.Args[0])
	case setpoint + "source.Ticker", setpoint + "source.NewChannel":
	default:
		d.hidden = true
	}
}

// children declares the kinds of all Sets of the package.
func (d *declarations) children() {
	for _, call := range d.calls {
		if d.funcOf(call) == setpoint+"children.Of" {
			d.declare(call.Args[0])
		}
	}
}

func (d *declarations) funcOf(call *ast.CallExpr) string {
	var id *ast.Ident
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.IndexExpr: // type arguments
		return d.funcOf(&ast.CallExpr{Fun: f.X})
	case *ast.IndexListExpr:
		return d.funcOf(&ast.CallExpr{Fun: f.X})
	case *ast.SelectorExpr:
		id = f.Sel
	case *ast.Ident:
		id = f
	default:
		return ""
	}
	f, _ := d.pass.TypesInfo.Uses[id].(*types.Func)
	return funcName(f)
}

func (d *declarations) declare(handle ast.Expr) {
	if object := objectOf(d.pass.TypesInfo.TypeOf(handle)); object != nil {
		d.objects[types.TypeString(object, nil)] = true
	} else {
		d.hidden = true
	}
}

// objectOf returns the type of the objects of a handle or an index, or nil if it is neither, or
// generic code.
func objectOf(t types.Type) types.Type {
	n, ok := deref(t).(*types.Named)
	if !ok {
		return nil
	}
	switch typeName(n) {
	case setpoint + "cache.Handle", setpoint + "cache.Index":
		object := n.TypeArgs().At(0)
		if _, generic := types.Unalias(object).(*types.TypeParam); !generic {
			return object
		}
	}
	return nil
}

// check reports the reads of a Reconcile that are not declared.
func (d *declarations) check(root *ssa.Function) {
	for f := range d.reachable(root) {
		for i := range instructions(f) {
			call, ok := i.(ssa.CallInstruction)
			if !ok || !isRead(callee(call.Common())) {
				continue
			}
			object := objectOf(call.Common().Args[0].Type())
			syntax := d.calls[call.Pos()]
			if object == nil || syntax == nil || d.objects[types.TypeString(object, nil)] {
				continue
			}
			handle := "the handle"
			if s, ok := ast.Unparen(syntax.Fun).(*ast.SelectorExpr); ok {
				handle = types.ExprString(s.X)
			}
			d.pass.Reportf(syntax.Pos(), "a Reconcile reads %s, which its controller does not declare; "+
				"pass the handle to the controller's Reads, or to the source.Kind of a Watch", handle)
		}
	}
}

// isRead reports whether a method reads what its controller must declare.
func isRead(name string) bool {
	switch strings.TrimPrefix(name, setpoint+"cache.") {
	case "Handle.Get", "Handle.List", "Handle.All", "Handle.Owned", "Handle.OwnedVersions", "Index.List", "Index.All":
		return true
	}
	return false
}
