// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package analyzers

import (
	"go/types"
	"iter"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

const (
	setpoint         = "github.com/setpoint-dev/setpoint/"
	runtimeClient    = "sigs.k8s.io/controller-runtime/pkg/client."
	runtimeUtil      = "sigs.k8s.io/controller-runtime/pkg/controller/controllerutil."
	runtimeReconcile = "sigs.k8s.io/controller-runtime/pkg/reconcile."
)

func instructions(f *ssa.Function) iter.Seq[ssa.Instruction] {
	return func(yield func(ssa.Instruction) bool) {
		for _, b := range f.Blocks {
			for _, i := range b.Instrs {
				if !yield(i) {
					return
				}
			}
		}
	}
}

// typeName returns the path and name of a type or of what it points to, without type arguments. It
// returns "" for a type without a name.
func typeName(t types.Type) string {
	t = types.Unalias(t)
	if p, ok := t.(*types.Pointer); ok {
		t = types.Unalias(p.Elem())
	}
	n, ok := t.(*types.Named)
	if !ok || n.Obj().Pkg() == nil {
		return ""
	}
	return n.Obj().Pkg().Path() + "." + n.Obj().Name()
}

func isContext(t types.Type) bool { return typeName(t) == "context.Context" }

// callee returns the path and name of a function, or the path, type and name of a method. The type
// of an interface's method is the interface that lists it, also if another one embeds that.
func callee(c *ssa.CallCommon) string {
	var f *types.Func
	if c.IsInvoke() {
		f = c.Method
	} else if static := c.StaticCallee(); static != nil {
		f, _ = static.Object().(*types.Func)
	}
	return funcName(f)
}

func funcName(f *types.Func) string {
	if f == nil || f.Pkg() == nil {
		return ""
	}
	if recv := f.Signature().Recv(); recv != nil {
		return typeName(recv.Type()) + "." + f.Name()
	}
	return f.Pkg().Path() + "." + f.Name()
}

// method returns the last part of the result of callee.
func method(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// contextOf returns the first argument that is a context, and its index, or nil.
func contextOf(c *ssa.CallCommon) (ssa.Value, int) {
	for n, arg := range c.Args {
		if isContext(arg.Type()) {
			return arg, n
		}
	}
	return nil, 0
}

// isWrite reports whether a method or function of Setpoint or controller-runtime writes.
func isWrite(name string) bool {
	var writes []string
	switch strings.TrimSuffix(name, method(name)) {
	case setpoint + "client.Handle.", setpoint + "client.Writer.", setpoint + "client.Subresource.":
		writes = []string{
			"Create", "Update", "UpdateStatus", "Patch", "PatchStatus", "Apply", "ApplyStatus", "Delete", "DeleteAll",
			"EnsureFinalizer", "RemoveFinalizer", "Prune", "UpgradeManagedFields",
		}
	case setpoint + "client.":
		writes = []string{"CreateOrUpdate", "CreateOrPatch", "PatchFrom"}
	case setpoint + "status.", setpoint + "status.Writer.":
		writes = []string{"Apply", "Update"}
	case setpoint + "finalizer.Chain.":
		writes = []string{"Ensure", "Finalize"}
	case setpoint + "children.Set.":
		writes = []string{"Reconcile", "Delete"}
	case runtimeClient + "Writer.", runtimeClient + "SubResourceWriter.":
		writes = []string{"Create", "Update", "Patch", "Apply", "Delete", "DeleteAllOf"}
	case runtimeUtil:
		writes = []string{"CreateOrUpdate", "CreateOrPatch"}
	}
	return slices.Contains(writes, method(name))
}
