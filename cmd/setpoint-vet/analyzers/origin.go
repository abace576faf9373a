// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package analyzers

import (
	"go/types"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// origin is where a context comes from.
type origin uint8

const (
	// unknown cannot be seen in this package.
	unknown origin = iota
	// own is derived from the context of a Reconcile.
	own
	// background is derived from context.Background or context.TODO only.
	background
	// outside existed before the Reconcile was called.
	outside
)

// tracer follows contexts back to where they come from.
type tracer struct {
	*reconciles
	visiting map[ssa.Value]bool // against loops
	// backgrounds has the calls of context.Background that the last trace has found.
	backgrounds []*ssa.Call
}

func (r *reconciles) trace(v ssa.Value) (origin, []*ssa.Call) {
	t := &tracer{reconciles: r, visiting: map[ssa.Value]bool{}}
	o := t.of(v)
	return o, t.backgrounds
}

func (t *tracer) of(v ssa.Value) origin {
	if t.visiting[v] {
		return unknown
	}
	t.visiting[v] = true
	defer delete(t.visiting, v)
	switch v := v.(type) {
	case *ssa.Parameter:
		if t.parts[v.Parent()] {
			return own
		}
		return outside
	case *ssa.Call:
		return t.ofCall(v)
	case *ssa.Extract:
		return t.of(v.Tuple)
	case *ssa.ChangeInterface:
		return t.of(v.X)
	case *ssa.Phi:
		return t.common(slices.DeleteFunc(slices.Clone(v.Edges), func(e ssa.Value) bool { return t.visiting[e] }))
	case *ssa.UnOp:
		return t.ofVariable(v.X)
	}
	return unknown
}

func (t *tracer) ofCall(call *ssa.Call) origin {
	if isBackground(call) {
		t.backgrounds = append(t.backgrounds, call)
		return background
	}
	switch callee(&call.Call) {
	case setpoint + "ledger.Without", setpoint + "term.Without":
		return own // on purpose
	}
	var from []ssa.Value
	for _, arg := range call.Call.Args {
		if isContext(arg.Type()) {
			from = append(from, arg)
		}
	}
	return t.common(from)
}

// common returns the origin that values have in common. It is own if one of them is.
func (t *tracer) common(values []ssa.Value) origin {
	var found []origin
	for _, v := range values {
		found = append(found, t.of(v))
	}
	switch {
	case len(found) == 0:
		return unknown
	case slices.Contains(found, own):
		return own
	case slices.Contains(found, unknown):
		return unknown
	case slices.Contains(found, background):
		return background
	}
	return outside
}

// ofVariable returns the origin of all values that a variable gets in this package.
func (t *tracer) ofVariable(address ssa.Value) origin {
	switch a := address.(type) {
	case *ssa.Alloc, *ssa.FreeVar:
		return t.common(stores(cell(a)))
	case *ssa.Global:
		return t.before(func(other ssa.Value) bool { return other == a })
	case *ssa.FieldAddr:
		of := deref(a.X.Type())
		if !slices.ContainsFunc(t.roots, func(f *ssa.Function) bool {
			return f.Signature.Recv() != nil && types.Identical(deref(f.Signature.Recv().Type()), of)
		}) {
			return unknown
		}
		return t.before(func(other ssa.Value) bool {
			f, ok := other.(*ssa.FieldAddr)
			return ok && f.Field == a.Field && types.Identical(deref(f.X.Type()), of)
		})
	}
	return unknown
}

// before returns outside for a variable that gets its values outside of Reconciles, in this
// package.
func (t *tracer) before(same func(address ssa.Value) bool) origin {
	found := unknown
	for _, f := range t.all {
		for i := range instructions(f) {
			s, ok := i.(*ssa.Store)
			switch {
			case !ok || !same(s.Addr):
			case t.parts[f]:
				return unknown
			default:
				found = outside
			}
		}
	}
	return found
}

func deref(t types.Type) types.Type {
	t = types.Unalias(t)
	if p, ok := t.(*types.Pointer); ok {
		return types.Unalias(p.Elem())
	}
	return t
}

// cell returns the variable behind one that a literal has captured.
func cell(v ssa.Value) ssa.Value {
	free, ok := v.(*ssa.FreeVar)
	if !ok {
		return v
	}
	f := free.Parent()
	if f.Parent() == nil {
		return v
	}
	for i := range instructions(f.Parent()) {
		if c, ok := i.(*ssa.MakeClosure); ok && c.Fn == f {
			return cell(c.Bindings[slices.Index(f.FreeVars, free)])
		}
	}
	return v
}

// stores returns the values that a variable gets, also in the literals that capture it.
func stores(variable ssa.Value) (values []ssa.Value) {
	for _, use := range *variable.Referrers() {
		switch use := use.(type) {
		case *ssa.Store:
			if use.Addr == variable {
				values = append(values, use.Val)
			}
		case *ssa.MakeClosure:
			f, _ := use.Fn.(*ssa.Function)
			for n, b := range use.Bindings {
				if b == variable {
					values = append(values, stores(f.FreeVars[n])...)
				}
			}
		}
	}
	return values
}

func isBackground(c ssa.CallInstruction) bool {
	name := callee(c.Common())
	return name == "context.Background" || name == "context.TODO"
}
