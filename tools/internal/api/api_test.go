// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// lines returns the lines of a package with these declarations.
func lines(t *testing.T, source string) []string {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", "package p\n"+source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	config := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	p, err := config.Check("example.com/p", fset, []*ast.File{f}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return describe(p)
}

func TestDescribe(t *testing.T) {
	for name, c := range map[string]struct{ source, want string }{
		"a constant with its value":             {`type T string; const C T = "x"`, "const C T = \"x\"\ntype T string"},
		"an untyped constant":                   {`const C = 1 << 3`, "const C = 8"},
		"a variable":                            {`var V map[string][]*int`, "var V map[string][]*int"},
		"nothing that is not exported":          {`const c = 1; var v int; func f() {}; type t struct{ X int }; func (t) M() {}`, ""},
		"a function, without parameter names":   {`func F[K comparable](key K, more ...func(n int) error) (ok bool, err error) { return }`, "func F[K comparable](K, ...func(int) error) (bool, error)"},
		"a struct with its fields":              {`type T struct { b, B int; A func(x int) }`, "type T struct\nfield T.A func(int)\nfield T.B int"},
		"fields and methods that are promoted":  {`type T struct { inner }; type inner struct { X int }; func (*inner) M() {}`, "type T struct\nfield T.X int\nmethod (*T) M()"},
		"an embedded exported type in one line": {`type T struct { U }; type U struct{}; func (U) M() {}`, "type T struct\nfield T.U U (embedded)\ntype U struct\nmethod (U) M()"},
		"an interface with a line of all names": {`type T interface { B(n int); A() }`, "type T interface { A, B }\nmethod (T) A()\nmethod (T) B(int)"},
		"an interface of this package only":     {`type T interface { A(); b() }`, "type T interface { unexported methods }\nmethod (T) A()"},
		"a constraint":                          {`type T interface { ~int | string }`, "type T interface{~int | string}"},
		"an alias":                              {`type T = []int`, "type T = []int"},
		"a generic type":                        {`type T[K any] struct{ X K }; func (t *T[K]) M(k K) K { return k }`, "type T[K any] struct\nfield T.X K\nmethod (*T) M(K) K"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(lines(t, c.source), "\n"); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	const before = `type I interface { A() }; type S struct { X int }; func (S) M() {}; func F(x int) {}; type Gone struct { Y int }`
	for name, c := range map[string]struct {
		after        string
		changes      []string
		incompatible bool
	}{
		"nothing":                      {before, nil, false},
		"a parameter's name":           {strings.Replace(before, "F(x int)", "F(y int)", 1), nil, false},
		"a new function":               {before + "; func G() {}", []string{"G"}, false},
		"a new field":                  {strings.Replace(before, "X int", "X, Z int", 1), []string{"S.Z"}, false},
		"a parameter more":             {strings.Replace(before, "F(x int)", "F(x int, y ...int)", 1), []string{"F"}, true},
		"a new method of an interface": {strings.Replace(before, "A()", "A(); B()", 1), []string{"I", "I.B"}, true},
		"a method that is gone":        {strings.Replace(before, "func (S) M() {};", "", 1), []string{"S.M"}, true},
		"a type that is gone":          {strings.Replace(before, "; type Gone struct { Y int }", "", 1), []string{"Gone"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			changes := Compare(Baseline{"p": lines(t, before)}, Baseline{"p": lines(t, c.after)})
			var ids []string
			for _, change := range changes {
				ids = append(ids, change.Identifier)
			}
			if !slices.Equal(ids, c.changes) {
				t.Errorf("changed %v, want %v", ids, c.changes)
			}
			if got := slices.ContainsFunc(changes, Change.Incompatible); got != c.incompatible {
				t.Errorf("incompatible: %t, want %t; changes:\n%s", got, c.incompatible, changes)
			}
		})
	}
}

func TestUnexplained(t *testing.T) {
	gone := []Change{{Package: "cache", Identifier: "Handle.Get", Before: []string{"method (*Handle) Get()"}}}
	for text, explained := range map[string]bool{
		"- `cache`: `Handle.Get` is gone.":    true,
		"- `cache`: `Get` returns an error.":  true,
		"- `cache`: `Getter` has a new name.": false,
		"- `cache`: a Handle is closed.":      false,
		"- `client`: `Get` is gone.":          false,
		"- `cache`: a.\n- `client`: `Get`.":   false,
	} {
		if got := len(Unexplained(gone, text)) == 0; got != explained {
			t.Errorf("changelog %q explains Handle.Get: %t, want %t", text, got, explained)
		}
	}
	added := []Change{{Package: "cache", Identifier: "New", After: []string{"func New()"}}}
	if left := Unexplained(added, ""); len(left) > 0 {
		t.Errorf("an added identifier needs no line, got %v", left)
	}
}

func TestFiles_AreReadAgain(t *testing.T) {
	want := Baseline{"envtest/sim": lines(t, "type T struct { X int }")}
	dir := t.TempDir() + "/api"
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir)
	if err != nil || len(Compare(want, got)) > 0 || len(got) != 1 {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
