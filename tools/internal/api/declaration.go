// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// describe returns the lines of the exported declarations, in the order of their names. The lines
// of a type's fields and methods follow its own.
func describe(p *types.Package) []string {
	w := writer{p}
	var lines []string
	for _, name := range p.Scope().Names() {
		switch o := p.Scope().Lookup(name).(type) {
		case *types.Const:
			if o.Exported() {
				lines = append(lines, "const "+name+w.constType(o.Type())+" = "+o.Val().ExactString())
			}
		case *types.Var:
			if o.Exported() {
				lines = append(lines, "var "+name+" "+w.typ(o.Type()))
			}
		case *types.Func:
			if sig := o.Signature(); o.Exported() {
				lines = append(lines, "func "+name+w.typeParams(sig.TypeParams())+w.signature(sig))
			}
		case *types.TypeName:
			if o.Exported() {
				lines = append(lines, w.declared(o)...)
			}
		}
	}
	return lines
}

func (w writer) constType(t types.Type) string {
	if basic, ok := t.(*types.Basic); ok && basic.Info()&types.IsUntyped != 0 {
		return ""
	}
	return " " + w.typ(t)
}

func (w writer) declared(o *types.TypeName) []string {
	if alias, ok := o.Type().(*types.Alias); ok {
		return []string{"type " + o.Name() + w.typeParams(alias.TypeParams()) + " = " + w.typ(alias.Rhs())}
	}
	named := o.Type().(*types.Named)
	head := "type " + o.Name() + w.typeParams(named.TypeParams()) + " "
	var lines []string
	switch t := named.Underlying().(type) {
	case *types.Struct:
		head += "struct"
		lines = w.fields(o.Name(), t)
	case *types.Interface:
		return w.methodsOf(head, o.Name(), t)
	default:
		head += w.typ(t)
	}
	return slices.Concat([]string{head}, lines, w.methods(named))
}

// fields returns the exported fields, with the fields of embedded unexported structs.
func (w writer) fields(owner string, s *types.Struct) []string {
	var lines []string
	for f := range s.Fields() {
		inner, isStruct := types.Unalias(f.Type()).Underlying().(*types.Struct)
		switch {
		case f.Exported() && f.Embedded():
			lines = append(lines, "field "+owner+"."+f.Name()+" "+w.typ(f.Type())+" (embedded)")
		case f.Exported():
			lines = append(lines, "field "+owner+"."+f.Name()+" "+w.typ(f.Type()))
		case f.Embedded() && isStruct:
			lines = append(lines, w.fields(owner, inner)...)
		}
	}
	slices.Sort(lines)
	return lines
}

// methods returns the exported methods, with the methods of embedded unexported types. The line of
// an embedded exported type stands for its methods.
func (w writer) methods(named *types.Named) []string {
	var lines []string
	values := types.NewMethodSet(named)
	s, _ := named.Underlying().(*types.Struct)
	for sel := range types.NewMethodSet(types.NewPointer(named)).Methods() {
		m := sel.Obj()
		if !m.Exported() || len(sel.Index()) > 1 && s.Field(sel.Index()[0]).Exported() {
			continue
		}
		receiver := named.Obj().Name()
		if values.Lookup(m.Pkg(), m.Name()) == nil {
			receiver = "*" + receiver
		}
		lines = append(lines, "method ("+receiver+") "+m.Name()+w.signature(sel.Type().(*types.Signature)))
	}
	return lines
}

// methodsOf returns the lines of an interface. If types outside the package can implement it, its
// own line has the names of all methods, so that a new method changes a line.
func (w writer) methodsOf(head, name string, i *types.Interface) []string {
	if !i.IsMethodSet() {
		return []string{head + w.typ(i)}
	}
	var names, lines []string
	closed := false
	for m := range i.Methods() {
		if !m.Exported() {
			closed = true
			continue
		}
		names = append(names, m.Name())
		lines = append(lines, "method ("+name+") "+m.Name()+w.signature(m.Signature()))
	}
	if closed {
		names = []string{"unexported methods"}
	}
	return append([]string{head + "interface { " + strings.Join(names, ", ") + " }"}, lines...)
}

var identifier = regexp.MustCompile(`^(?:const|var|func|type) (\w+)|^field (\w+)\.(\w+)|^method \(\*?(\w+)\) (\w+)`)

// Identifier returns what a line declares: a name, or Type.Member.
func Identifier(line string) string {
	m := identifier.FindStringSubmatch(line)
	if m == nil {
		return ""
	}
	if m[1] != "" {
		return m[1]
	}
	return m[2] + m[4] + "." + m[3] + m[5]
}
