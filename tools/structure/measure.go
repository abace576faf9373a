// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

const modulePath = "github.com/setpoint-dev/setpoint"

// notLibrary are folders of the root module that users' programs do not link. The beginning of
// envtest/sim was in internal/fakeapi, and e2e was internal/scenario.
var notLibrary = []string{"envtest", "examples", "internal/fakeapi", "internal/scenario", "webhook/webhooktest"}

// smallest is the smallest operator.
const smallest = modulePath + "/examples/hello"

// library is the result of a measurement.
type library struct {
	packages map[string]*pkg // by folder
	linked   int             // lines that the smallest operator links
}

// pkg is one package.
type pkg struct {
	name     string
	lines    int
	comments int // lines that hold a comment only
	blank    int
	mutexes  int
	funcs    int // fields of structs whose type is a function
	names    int // exported
	exported int // methods of exported types, also from embedded unexported ones
	files    []string
	uses     map[[2]string][]string // the names that one file uses of another
	types    map[string]*typ        // by folder and name: "controller.Controller"
}

// typ is a type with methods.
type typ struct {
	methods int
	files   map[string]bool
}

// measure reads the library below root.
func measure(ctx context.Context, root string) (*library, error) {
	loaded, err := packages.Load(&packages.Config{
		Context: ctx,
		Dir:     root,
		Env:     append(os.Environ(), "GOWORK=off"),
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo,
	}, "./...")
	if err != nil {
		return nil, err
	}
	lib := &library{packages: map[string]*pkg{}}
	links := linkedBy(loaded, smallest)
	for _, l := range loaded {
		name := strings.TrimPrefix(strings.TrimPrefix(l.PkgPath, modulePath), "/")
		if name == "" || l.Name == "main" || outside(name) {
			continue
		}
		if len(l.Errors) > 0 {
			return nil, fmt.Errorf("%s: %w", l.PkgPath, l.Errors[0])
		}
		if err := lib.add(name, l); err != nil {
			return nil, err
		}
		if links[l.PkgPath] {
			lib.linked += lib.packages[name].lines
		}
	}
	return lib, nil
}

// linkedBy returns the paths of the loaded packages that a program imports, directly or not.
func linkedBy(loaded []*packages.Package, program string) map[string]bool {
	byPath := map[string]*packages.Package{}
	for _, l := range loaded {
		byPath[l.PkgPath] = l
	}
	links := map[string]bool{}
	var follow func(path string)
	follow = func(path string) {
		l := byPath[path]
		if l == nil || links[path] {
			return
		}
		links[path] = true
		for imported := range l.Imports {
			follow(imported)
		}
	}
	follow(program)
	return links
}

func outside(name string) bool {
	for _, folder := range notLibrary {
		if name == folder || strings.HasPrefix(name, folder+"/") {
			return true
		}
	}
	return false
}

func (lib *library) add(name string, l *packages.Package) error {
	p := &pkg{name: name, uses: map[[2]string][]string{}, types: map[string]*typ{}}
	for i, file := range l.Syntax {
		text, err := os.ReadFile(l.CompiledGoFiles[i])
		if err != nil {
			return err
		}
		p.files = append(p.files, base(l.Fset, file.Pos()))
		p.countLines(text)
		p.countMutexes(file, l)
		p.countFuncs(file, l.TypesInfo)
	}
	for id, used := range l.TypesInfo.Uses {
		p.use(l, id, used)
	}
	for _, id := range l.Types.Scope().Names() {
		if token.IsExported(id) {
			p.names++
		}
		p.countMethods(l, l.Types.Scope().Lookup(id))
	}
	lib.packages[name] = p
	return nil
}

func (p *pkg) countLines(text []byte) {
	for line := range bytes.Lines(text) {
		p.lines++
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0:
			p.blank++
		case bytes.HasPrefix(line, []byte("//")):
			p.comments++
		}
	}
}

// countFuncs counts the fields of structs whose type is a function.
func (p *pkg) countFuncs(file *ast.File, info *types.Info) {
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.StructType)
		if !ok {
			return true
		}
		for _, f := range s.Fields.List {
			if t := info.TypeOf(f.Type); t != nil {
				if _, isFunc := t.Underlying().(*types.Signature); isFunc {
					p.funcs += max(1, len(f.Names))
				}
			}
		}
		return true
	})
}

// countMutexes counts variables and fields of a mutex type.
func (p *pkg) countMutexes(file *ast.File, l *packages.Package) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if isMutex(l.TypesInfo.TypeOf(n.Type)) {
				p.mutexes += max(1, len(n.Names))
			}
		case *ast.ValueSpec:
			if n.Type != nil && isMutex(l.TypesInfo.TypeOf(n.Type)) {
				p.mutexes += len(n.Names)
			}
		}
		return true
	})
}

func isMutex(t types.Type) bool {
	named, ok := t.(*types.Named)
	if !ok || named.Obj().Pkg() == nil || named.Obj().Pkg().Path() != "sync" {
		return false
	}
	return named.Obj().Name() == "Mutex" || named.Obj().Name() == "RWMutex"
}

// use records that a file names a declaration of another file of the package.
func (p *pkg) use(l *packages.Package, id *ast.Ident, used types.Object) {
	if used.Pkg() != l.Types || !declared(used, l.Types) {
		return
	}
	from, to := base(l.Fset, id.Pos()), base(l.Fset, used.Pos())
	if from != to {
		p.uses[[2]string{from, to}] = append(p.uses[[2]string{from, to}], used.Name())
	}
}

// declared reports whether the object is a function, a method, or a top-level name.
func declared(o types.Object, in *types.Package) bool {
	if f, ok := o.(*types.Func); ok {
		recv := f.Signature().Recv()
		return recv == nil || !types.IsInterface(recv.Type())
	}
	return o.Parent() == in.Scope()
}

func (p *pkg) countMethods(l *packages.Package, o types.Object) {
	tn, ok := o.(*types.TypeName)
	if !ok || tn.IsAlias() {
		return
	}
	named, ok := tn.Type().(*types.Named)
	if !ok {
		return
	}
	t := &typ{files: map[string]bool{}}
	for m := range named.Methods() {
		t.methods++
		t.files[base(l.Fset, m.Pos())] = true
	}
	p.countExported(tn, named)
	if t.methods > 0 {
		p.types[p.name+"."+tn.Name()] = t
	}
}

// countExported counts the exported methods that users can call on values of an exported type: its
// own, and those that it gets from embedded unexported types of its package.
func (p *pkg) countExported(of *types.TypeName, named *types.Named) {
	if !of.Exported() || types.IsInterface(named) || strings.Contains(of.Pkg().Path()+"/", "/internal/") {
		return
	}
	set := types.NewMethodSet(types.NewPointer(named))
	for s := range set.Methods() {
		if s.Obj().Exported() && s.Obj().Pkg() == of.Pkg() && (len(s.Index()) == 1 || !ofExported(s.Obj())) {
			p.exported++
		}
	}
}

// ofExported reports whether a method's receiver is an exported type, which is counted itself.
func ofExported(method types.Object) bool {
	recv := method.(*types.Func).Signature().Recv().Type()
	if p, ok := recv.(*types.Pointer); ok {
		recv = p.Elem()
	}
	named, ok := recv.(*types.Named)
	return ok && named.Obj().Exported()
}

func base(set *token.FileSet, pos token.Pos) string {
	return filepath.Base(set.Position(pos).Filename)
}
