// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// chosen is the environment variable with the number of the mutant that a program runs. The program
// creates the file in the variable ran when it gets to the mutant's code.
const (
	chosen = "SETPOINT_MUTANT"
	ran    = "SETPOINT_MUTANT_RAN"
)

// Variants compile many mutants into one program. A function that mutants change becomes several:
// the original, one for each mutant, and one with the old name, which calls one of the others. The
// environment variable SETPOINT_MUTANT chooses the mutant.
type variants struct {
	tree  string
	files map[string]*variantFile // by name
}

// A variantFile is a file with functions that mutants change.
type variantFile struct {
	text    string                   // without changes
	changed map[int]map[int]function // by the index of the declaration, and by mutant
}

// A function is the text of a declaration, in parts.
type function struct {
	head string // with the receiver
	name string
	tail string
}

// add adds mutant n, whose changed files are given, and returns true. It returns false if the
// mutant needs a program of its own.
func (v *variants) add(n int, files map[string]string) (bool, error) {
	all := map[*variantFile]map[int]function{}
	for name, text := range files {
		f, err := v.file(name)
		if err != nil {
			return false, err
		}
		functions, ok := f.bodies(text)
		if !ok {
			return false, nil
		}
		all[f] = functions
	}
	for f, functions := range all {
		for i, changed := range functions {
			if f.changed[i] == nil {
				f.changed[i] = map[int]function{}
			}
			f.changed[i][n] = changed
		}
	}
	return true, nil
}

func (v *variants) file(name string) (*variantFile, error) {
	if f, ok := v.files[name]; ok {
		return f, nil
	}
	text, err := os.ReadFile(filepath.Join(v.tree, name))
	v.files[name] = &variantFile{string(text), map[int]map[int]function{}}
	return v.files[name], err
}

// bodies returns the functions of a changed text whose bodies differ, by the index of the
// declaration. It returns false if something else differs, or if a function would notice another
// one between itself and its caller.
func (f *variantFile) bodies(text string) (functions map[int]function, ok bool) {
	before, after := declarations(f.text), declarations(text)
	functions = map[int]function{}
	if len(before) != len(after) {
		return nil, false
	}
	for i, d := range after {
		switch was := before[i]; {
		case d.text() == was.text():
		case d.ast == nil || was.ast == nil || d.signature() != was.signature() || !d.callable() || d.recovers() || was.recovers():
			return nil, false
		default:
			functions[i] = d.function()
		}
	}
	return functions, true
}

// drop removes mutant n.
func (v *variants) drop(n int) {
	for _, f := range v.files {
		for _, changed := range f.changed {
			delete(changed, n)
		}
	}
}

// write writes the files to the tree, and one more for each package. That one is the first, because
// variables are initialized in the order of the files.
func (v *variants) write() error {
	for name, f := range v.files {
		if err := os.WriteFile(filepath.Join(v.tree, name), []byte(f.combined()), 0o644); err != nil {
			return err
		}
		clause, _, _ := strings.Cut(f.text[packageClause(f.text):], "\n")
		if err := os.WriteFile(filepath.Join(v.tree, path.Dir(name), "0_mutant_chosen.go"), []byte(clause+choice), 0o644); err != nil {
			return err
		}
	}
	return nil
}

var choice = fmt.Sprintf(`

import (
	"os"
	"sync/atomic"
)

var (
	mutantChosen, mutantRan = os.Getenv(%q), os.Getenv(%q)
	mutantRuns              atomic.Bool
)

func runMutant() {
	if !mutantRuns.Swap(true) {
		_ = os.WriteFile(mutantRan, nil, 0o600)
	}
}
`, chosen, ran)

func (f *variantFile) combined() string {
	var b strings.Builder
	end := 0
	for i, d := range declarations(f.text) {
		if len(f.changed[i]) == 0 {
			continue
		}
		b.WriteString(f.text[end:d.from])
		original := d.function()
		b.WriteString(d.chooser(slices.Sorted(maps.Keys(f.changed[i]))))
		fmt.Fprintf(&b, "\n%s%s%s\n", original.head, mutantName(0, original.name), original.tail)
		for _, n := range slices.Sorted(maps.Keys(f.changed[i])) {
			of := f.changed[i][n]
			fmt.Fprintf(&b, "\n%s%s%s\n", of.head, mutantName(n, of.name), of.tail)
		}
		end = d.to
	}
	b.WriteString(f.text[end:])
	return b.String()
}

func mutantName(n int, name string) string { return fmt.Sprintf("mutant%d_%s", n, name) }

// at returns the mutant whose code is in a line of a file, or 0.
func (v *variants) at(name string, line int) int {
	f := v.files[name]
	if f == nil {
		return 0
	}
	text := f.combined()
	for _, d := range declarations(text) {
		if d.ast == nil || line < 1+strings.Count(text[:d.from], "\n") || line > 1+strings.Count(text[:d.to], "\n") {
			continue
		}
		n, _, _ := strings.Cut(strings.TrimPrefix(d.ast.Name.Name, "mutant"), "_")
		mutant, _ := strconv.Atoi(n)
		return mutant
	}
	return 0
}

// A declaration is at the top level of a file.
type declaration struct {
	in       string // the file's text
	from, to int    // without the comment before it
	ast      *ast.FuncDecl
	offset   func(token.Pos) int
}

// declarations returns nil if the text is not Go.
func declarations(text string) []declaration {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil
	}
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	var all []declaration
	for _, d := range file.Decls {
		f, _ := d.(*ast.FuncDecl)
		if f != nil && f.Body == nil {
			f = nil
		}
		all = append(all, declaration{text, offset(d.Pos()), offset(d.End()), f, offset})
	}
	return all
}

func packageClause(text string) int {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", text, parser.PackageClauseOnly)
	if err != nil {
		return len(text)
	}
	return fset.Position(file.Package).Offset
}

func (d declaration) text() string { return d.in[d.from:d.to] }

func (d declaration) of(n ast.Node) string { return d.in[d.offset(n.Pos()):d.offset(n.End())] }

func (d declaration) signature() string { return d.in[d.from:d.offset(d.ast.Body.Pos())] }

func (d declaration) function() function {
	name := d.offset(d.ast.Name.Pos())
	return function{d.in[d.from:name], d.ast.Name.Name, d.in[d.offset(d.ast.Name.End()):d.to]}
}

// callable reports whether another function can call it, with the same type arguments.
func (d declaration) callable() bool {
	if params := d.ast.Type.TypeParams; params != nil {
		for _, field := range params.List {
			if slices.ContainsFunc(field.Names, func(name *ast.Ident) bool { return name.Name == "_" }) {
				return false
			}
		}
	}
	return d.ast.Name.Name != "init"
}

// recovers reports whether the function calls recover, which works only in a deferred function.
func (d declaration) recovers() (found bool) {
	ast.Inspect(d.ast.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.Ident:
			found = found || n.Name == "recover"
		}
		return true
	})
	return found
}

// chooser returns a function with the declaration's name, which calls the chosen variant.
func (d declaration) chooser(mutants []int) string {
	var b strings.Builder
	b.WriteString("func ")
	call := "%s"
	if d.ast.Recv != nil {
		fmt.Fprintf(&b, "(chooser %s) ", d.of(d.ast.Recv.List[0].Type))
		call = "chooser.%s"
	}
	b.WriteString(d.ast.Name.Name)
	if params := d.ast.Type.TypeParams; params != nil {
		b.WriteString(d.of(params))
		var names []string
		for _, field := range params.List {
			for _, name := range field.Names {
				names = append(names, name.Name)
			}
		}
		call += "[" + strings.Join(names, ", ") + "]"
	}
	var params, args []string
	for _, field := range d.ast.Type.Params.List {
		for range max(1, len(field.Names)) {
			name := fmt.Sprintf("chooser%d", len(args))
			params = append(params, name+" "+d.of(field.Type))
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				name += "..."
			}
			args = append(args, name)
		}
	}
	fmt.Fprintf(&b, "(%s) ", strings.Join(params, ", "))
	call += "(" + strings.Join(args, ", ") + ")"
	if d.ast.Type.Results != nil {
		b.WriteString(d.of(d.ast.Type.Results) + " ")
		call = "return " + call
	} else {
		call += "; return"
	}
	b.WriteString("{\n\tswitch mutantChosen {\n")
	for _, n := range mutants {
		fmt.Fprintf(&b, "\tcase \"%d\":\n\t\trunMutant()\n\t\t"+call+"\n", n, mutantName(n, d.ast.Name.Name))
	}
	fmt.Fprintf(&b, "\t}\n\t"+call+"\n}\n", mutantName(0, d.ast.Name.Name))
	return b.String()
}
