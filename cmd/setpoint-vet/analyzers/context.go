// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package analyzers

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/astutil"
	"golang.org/x/tools/go/ssa"
)

// ReconcileContext reports a write, or a read of a cache, whose context is not derived from the
// Reconcile's, and each context.Background and context.TODO in a Reconcile. A write with another
// context is not attributed to the key, so the next Reconcile may not see it, and it has no term of
// leadership. A read with another context is not checked against the controller's declarations. The
// fix replaces context.Background() by the context of the function, except in literals.
//
// A context that ledger.Without or term.Without returns is accepted.
var ReconcileContext = &analysis.Analyzer{
	Name:     "reconcilecontext",
	Doc:      "report contexts in a Reconcile, and writes and reads with contexts, that are not derived from its context",
	URL:      "https://pkg.go.dev/" + setpoint + "cmd/setpoint-vet/analyzers",
	Requires: []*analysis.Analyzer{reconcileFinder},
	Run: func(pass *analysis.Pass) (any, error) {
		r, _ := pass.ResultOf[reconcileFinder].(*reconciles)
		c := &contexts{pass, r, map[ssa.Instruction]bool{}}
		for _, f := range r.all {
			if r.parts[f] {
				c.findBackground(f)
			}
		}
		for _, f := range r.all {
			if r.parts[f] {
				c.findRequests(f)
			}
		}
		return nil, nil //nolint:nilnil // an analyzer without a result
	},
}

type contexts struct {
	pass     *analysis.Pass
	r        *reconciles
	reported map[ssa.Instruction]bool // calls of context.Background
}

func (c *contexts) findBackground(f *ssa.Function) {
	ctx := c.contextIn(f)
	if ctx == nil {
		return
	}
	for i := range instructions(f) {
		call, ok := i.(*ssa.Call)
		if !ok || !isBackground(call) || onPurpose(call) {
			continue
		}
		c.reported[call] = true
		syntax := c.r.calls[call.Pos()]
		d := analysis.Diagnostic{Pos: syntax.Pos(), End: syntax.End()}
		name := ctx.Name()
		if name == "_" || name == "" {
			d.Message = fmt.Sprintf("%s in a Reconcile, whose context has no name; name it ctx, and use it", text(syntax))
			c.pass.Report(d)
			continue
		}
		switch c.place(syntax, ctx) {
		case visible:
			d.Message = fmt.Sprintf("%s in a Reconcile; use %s", text(syntax), name)
			d.SuggestedFixes = []analysis.SuggestedFix{{
				Message:   "Use " + name,
				TextEdits: []analysis.TextEdit{{Pos: syntax.Pos(), End: syntax.End(), NewText: []byte(name)}},
			}}
		case assigned:
			d.Message = fmt.Sprintf("%s replaces the context of a Reconcile; remove the assignment", text(syntax))
		case hidden:
			d.Message = fmt.Sprintf("%s in a Reconcile; use its context %s, context.WithoutCancel(%s) to clean up after its end, "+
				"or ledger.Without(%s) for work that outlives the Reconcile", text(syntax), name, name, name)
		}
		c.pass.Report(d)
	}
}

// contextIn returns the parameter of a function, or of one around it, that is a context. It returns
// nil if there is none.
func (c *contexts) contextIn(f *ssa.Function) types.Object {
	for ; f != nil && c.r.parts[f]; f = f.Parent() {
		for p := range f.Signature.Params().Variables() {
			if isContext(p.Type()) {
				return p
			}
		}
	}
	return nil
}

// onPurpose reports whether the only use of a context is a call of ledger.Without or term.Without.
func onPurpose(call *ssa.Call) bool {
	uses := *call.Referrers()
	if len(uses) != 1 {
		return false
	}
	user, ok := uses[0].(ssa.CallInstruction)
	return ok && slices.Contains([]string{setpoint + "ledger.Without", setpoint + "term.Without"}, callee(user.Common()))
}

type place uint8

const (
	// visible: the function's context can be written there.
	visible place = iota
	// assigned: the function's context is overwritten there.
	assigned
	// hidden: in a literal, a deferred call or another goroutine, or another variable has the name.
	hidden
)

func (c *contexts) place(call *ast.CallExpr, ctx types.Object) place {
	_, found := c.pass.Pkg.Scope().Innermost(call.Pos()).LookupParent(ctx.Name(), call.Pos())
	if found != ctx {
		return hidden
	}
	for _, file := range c.pass.Files {
		if file.FileStart > call.Pos() || call.Pos() >= file.FileEnd {
			continue
		}
		around, _ := astutil.PathEnclosingInterval(file, call.Pos(), call.End())
		for _, n := range around {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.DeferStmt:
				return hidden
			case *ast.AssignStmt:
				if n.Tok == token.ASSIGN && len(n.Lhs) == 1 && n.Rhs[0] == call && c.pass.TypesInfo.ObjectOf(identOf(n.Lhs[0])) == ctx {
					return assigned
				}
			case *ast.FuncLit:
				if n.Type.Pos() <= ctx.Pos() && ctx.Pos() < n.Type.End() {
					return visible
				}
				return hidden
			}
		}
	}
	return visible
}

func identOf(e ast.Expr) *ast.Ident {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok {
		return &ast.Ident{}
	}
	return id
}

func text(call *ast.CallExpr) string { return types.ExprString(call) }

func (c *contexts) findRequests(f *ssa.Function) {
	for i := range instructions(f) {
		call, ok := i.(ssa.CallInstruction)
		if !ok || !isWrite(callee(call.Common())) && !isRead(callee(call.Common())) {
			continue
		}
		ctx, _ := contextOf(call.Common())
		if ctx == nil {
			continue
		}
		from, backgrounds := c.r.trace(ctx)
		if from != background && from != outside ||
			slices.ContainsFunc(backgrounds, func(b *ssa.Call) bool { return c.reported[b] }) {
			continue
		}
		at := call.Pos()
		if syntax := c.r.calls[at]; syntax != nil {
			at = syntax.Pos()
		}
		c.pass.Reportf(at, "%s in a Reconcile with a context that is not derived from the Reconcile's; "+
			"pass the Reconcile's context down to it, or ledger.Without(ctx) if that is intended", method(callee(call.Common())))
	}
}
