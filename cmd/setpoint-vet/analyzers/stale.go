// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package analyzers

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ssa"
)

// StaleObject reports an object that is written or returned after a write has returned a newer one.
// Update and the like of client.Handle do not change their argument, so its resourceVersion is that
// before the write, and a second write of it fails with a conflict. It considers the path on which
// the first write has succeeded, and files other than tests; of tests, only Reconciles. The fix
// assigns the result to the variable, unless the second write sends another part of the object.
var StaleObject = &analysis.Analyzer{
	Name:     "staleobject",
	Doc:      "report objects that are used again after a write returned a newer one",
	URL:      "https://pkg.go.dev/" + setpoint + "cmd/setpoint-vet/analyzers",
	Requires: []*analysis.Analyzer{reconcileFinder},
	Run: func(pass *analysis.Pass) (any, error) {
		r, _ := pass.ResultOf[reconcileFinder].(*reconciles)
		for _, f := range r.all {
			if f.Pos().IsValid() && !r.parts[f] && strings.HasSuffix(pass.Fset.File(f.Pos()).Name(), "_test.go") {
				continue
			}
			for i := range instructions(f) {
				if w := writeOf(r, i); w != nil {
					w.search(pass, r)
				}
			}
		}
		return nil, nil //nolint:nilnil // an analyzer without a result
	},
}

// write is a call that sends an object, and returns it as it is then.
type write struct {
	*ssa.Call
	name   string // of the method or function
	object ssa.Value
	result ssa.Value // nil if it is dropped
	err    ssa.Value // nil if it is dropped
	syntax *ast.CallExpr
	// returns: the caller of the function expects the new object, if it returns one.
	returns bool
}

// writeOf returns nil for an instruction that is no such write.
func writeOf(r *reconciles, i ssa.Instruction) *write {
	call, ok := i.(*ssa.Call)
	if !ok {
		return nil
	}
	w := &write{Call: call, syntax: r.calls[call.Pos()], name: callee(&call.Call), returns: true}
	_, ctx := contextOf(&call.Call)
	at := 0 // the object, after the context
	switch w.name {
	case setpoint + "client.Handle.Update", setpoint + "client.Handle.UpdateStatus",
		setpoint + "client.Writer.Update", setpoint + "client.Writer.UpdateStatus":
		at = 1
	case setpoint + "client.Handle.EnsureFinalizer", setpoint + "client.Handle.RemoveFinalizer",
		setpoint + "client.Handle.Patch", setpoint + "client.Writer.Patch",
		setpoint + "client.Handle.PatchStatus", setpoint + "client.Writer.PatchStatus":
		at, w.returns = 1, false
	case setpoint + "client.PatchFrom", setpoint + "status.Update":
		at = 3
	default:
		return nil
	}
	if w.syntax == nil || w.dry() {
		return nil
	}
	w.object = unwrap(call.Call.Args[ctx+at])
	if strings.HasSuffix(w.name, "Patch") || strings.HasSuffix(w.name, "PatchStatus") {
		key, ok := w.object.(*ssa.Call)
		if !ok || callee(&key.Call) != setpoint+"client.ObjectKeyFromObject" {
			return nil
		}
		w.object = unwrap(key.Call.Args[0])
	}
	for _, use := range *call.Referrers() {
		if e, ok := use.(*ssa.Extract); ok && len(*e.Referrers()) > 0 {
			if e.Index == 0 {
				w.result = e
			} else {
				w.err = e
			}
		}
	}
	return w
}

// dry reports whether the write may have the option DryRun, which stores nothing.
func (w *write) dry() bool {
	return w.syntax.Ellipsis.IsValid() || slices.ContainsFunc(w.syntax.Args, func(e ast.Expr) bool {
		return strings.Contains(types.ExprString(e), "DryRun")
	})
}

func (w *write) verb() string { return method(w.name) }

// sends reports whether the write sends the object's resourceVersion.
func (w *write) sends() bool {
	return strings.HasSuffix(w.name, "Update") || strings.HasSuffix(w.name, "UpdateStatus")
}

// search reports the first use of the object on each path after the write.
func (w *write) search(pass *analysis.Pass, r *reconciles) {
	s := &search{write: w, pass: pass, r: r, seen: map[*ssa.BasicBlock]bool{}}
	if w.err != nil {
		var ok bool
		if s.errs, ok = errorsFrom(w.err); !ok {
			return
		}
	}
	b := w.Block()
	s.from(b, slices.Index(b.Instrs, ssa.Instruction(w.Call))+1)
}

type search struct {
	*write
	pass *analysis.Pass
	r    *reconciles
	errs map[ssa.Value]bool // what depends on the error
	seen map[*ssa.BasicBlock]bool
	done bool
}

// from follows the instructions of a block, and of those after it.
func (s *search) from(b *ssa.BasicBlock, at int) {
	for _, i := range b.Instrs[at:] {
		if s.done || s.ends(i) {
			return
		}
	}
	next := b.Succs
	if branch, ok := b.Instrs[len(b.Instrs)-1].(*ssa.If); ok && s.errs[branch.Cond] {
		next = success(branch)
	}
	for _, n := range next {
		if !s.seen[n] {
			s.seen[n] = true
			s.from(n, 0)
		}
	}
}

// success returns the successors of a condition about an error that are taken without an error.
func success(branch *ssa.If) []*ssa.BasicBlock {
	next := branch.Block().Succs
	switch c := branch.Cond.(type) {
	case *ssa.BinOp:
		sentinel := !isNil(c.X) && !isNil(c.Y)
		if (c.Op == token.EQL) != sentinel {
			return next[:1] // err == nil, or err != io.EOF
		}
		return next[1:]
	case *ssa.Call:
		switch pkg, _, _ := strings.Cut(callee(&c.Call), "."); {
		case pkg == "errors", strings.HasPrefix(callee(&c.Call), "k8s.io/apimachinery/pkg/api/"):
			return next[1:] // such as errors.Is and apierrors.IsConflict
		}
	}
	return nil
}

func isNil(v ssa.Value) bool {
	c, ok := v.(*ssa.Const)
	return ok && c.IsNil()
}

// ends reports whether an instruction ends a path: it uses the object, which is reported, or the
// object may be another one after it.
func (s *search) ends(i ssa.Instruction) bool {
	if v, ok := i.(ssa.Value); ok && v == s.object {
		return true // a loop begins again
	}
	switch i := i.(type) {
	case *ssa.Return:
		for _, v := range i.Results {
			if s.returns && s.result == nil && s.same(v) {
				s.report(i.Pos(), "returned", true)
			}
		}
		return true
	case *ssa.Store:
		if load, ok := s.object.(*ssa.UnOp); ok && i.Addr == load.X {
			return true
		}
		return s.same(i.Addr) || s.renews(i.Addr)
	case ssa.CallInstruction:
		return s.endsWith(i)
	}
	return false
}

func (s *search) endsWith(i ssa.CallInstruction) bool {
	if i == ssa.CallInstruction(s.Call) {
		return true
	}
	common := i.Common()
	if common.IsInvoke() && s.same(common.Value) || slices.ContainsFunc(common.Args, s.same) {
		if second := writeOf(s.r, i); second != nil && second.sends() {
			s.report(second.syntax.Pos(), "written by "+second.verb(), second.verb() == s.verb())
			return true
		}
		name := callee(common) // if it only reads the object, the path goes on
		return name != setpoint+"client.ObjectKeyFromObject" && !strings.HasPrefix(method(name), "Get")
	}
	return false
}

func (s *search) report(at token.Pos, use string, sameParts bool) {
	s.done = true
	line := s.pass.Fset.Position(s.syntax.Pos()).Line
	name := "the object"
	id, variable := s.syntax.Args[min(1, len(s.syntax.Args)-1)].(*ast.Ident)
	if s.verb() == "PatchFrom" || s.name == setpoint+"status.Update" {
		id, variable = s.syntax.Args[3].(*ast.Ident)
	}
	if variable {
		name = id.Name
	}
	d := analysis.Diagnostic{Pos: at, Message: fmt.Sprintf(
		"%s is %s after %s in line %d has returned a newer one; use what %s returns", name, use, s.verb(), line, s.verb())}
	if edit, ok := s.assign(id); variable && sameParts && ok {
		d.SuggestedFixes = []analysis.SuggestedFix{{Message: "Assign the result to " + name, TextEdits: []analysis.TextEdit{edit}}}
	}
	s.pass.Report(d)
}

// assign returns the edit that assigns the write's result to a variable: it replaces the blank in
// "_, err = h.Update(ctx, obj)".
func (s *search) assign(variable *ast.Ident) (edit analysis.TextEdit, ok bool) {
	if s.result != nil || variable == nil {
		return edit, false
	}
	of := s.pass.TypesInfo.ObjectOf(variable)
	if !types.Identical(of.Type(), s.Call.Call.Signature().Results().At(0).Type()) {
		return edit, false
	}
	for _, file := range s.pass.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			a, is := n.(*ast.AssignStmt)
			if !is || len(a.Rhs) != 1 || a.Rhs[0] != s.syntax || len(a.Lhs) != 2 || identOf(a.Lhs[0]).Name != "_" {
				return true
			}
			scope := s.pass.Pkg.Scope().Innermost(a.Pos())
			if a.Tok == token.ASSIGN || a.Tok == token.DEFINE && of.Parent() == scope {
				edit = analysis.TextEdit{Pos: a.Lhs[0].Pos(), End: a.Lhs[0].End(), NewText: []byte(variable.Name)}
				ok = true
			}
			return true
		})
	}
	return edit, ok
}

// same reports whether a value is the object, perhaps as an interface or loaded again from its
// variable.
func (s *search) same(v ssa.Value) bool {
	v = unwrap(v)
	if v == s.object {
		return true
	}
	a, is := s.object.(*ssa.UnOp)
	b, loads := v.(*ssa.UnOp)
	if !is || !loads || a.Op != token.MUL || b.Op != token.MUL || a.X != b.X {
		return false
	}
	switch a.X.(type) {
	case *ssa.Alloc, *ssa.FreeVar:
		return true
	}
	return false
}

// renews reports whether an address points to the object's metadata or resourceVersion.
func (s *search) renews(address ssa.Value) bool {
	f, ok := address.(*ssa.FieldAddr)
	if !ok {
		return false
	}
	field := deref(f.X.Type()).Underlying().(*types.Struct).Field(f.Field).Name() //nolint:forcetypeassert // FieldAddr has one
	if field != "ResourceVersion" && field != "ObjectMeta" {
		return false
	}
	for ok {
		if s.same(f.X) {
			return true
		}
		f, ok = f.X.(*ssa.FieldAddr)
	}
	return false
}

func unwrap(v ssa.Value) ssa.Value {
	for {
		switch w := v.(type) {
		case *ssa.MakeInterface:
			v = w.X
		case *ssa.ChangeInterface:
			v = w.X
		default:
			return v
		}
	}
}

// errorsFrom returns an error and what is computed from it: other errors, and conditions. ok is
// false if it is stored in a variable that a literal has captured, whose later values are unknown.
func errorsFrom(err ssa.Value) (from map[ssa.Value]bool, ok bool) {
	from = map[ssa.Value]bool{}
	ok = true
	var visit func(v ssa.Value)
	visit = func(v ssa.Value) {
		if from[v] {
			return
		}
		from[v] = true
		for _, use := range *v.Referrers() {
			switch use := use.(type) {
			case *ssa.Store:
				_, inArgument := use.Addr.(*ssa.IndexAddr) // of a variadic call
				ok = ok && inArgument
			case *ssa.Phi, *ssa.BinOp, *ssa.Call, *ssa.Extract, *ssa.MakeInterface, *ssa.ChangeInterface, *ssa.TypeAssert:
				visit(use.(ssa.Value)) //nolint:forcetypeassert // all of these are
			}
		}
	}
	visit(err)
	return from, ok
}
