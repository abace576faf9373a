// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package setpoint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// A goPackage is one folder with Go files. Paths are relative to the repository and use slashes.
type goPackage struct {
	dir, module string
	files       []*goFile
}

type goFile struct {
	path string
	text string
	ast  *ast.File
	fset *token.FileSet
}

// packages parses every Go file of the repository, in all modules.
func packages(t *testing.T) []*goPackage {
	t.Helper()
	found, err := parseAll()
	testkit.NoError(t, err)
	return found
}

// library returns the packages of the root module, without its examples.
func library(t *testing.T) []*goPackage {
	return slices.DeleteFunc(inModule(t, "."), func(p *goPackage) bool {
		return strings.HasPrefix(p.dir, "examples/")
	})
}

func inModule(t *testing.T, module string) []*goPackage {
	return slices.DeleteFunc(slices.Clone(packages(t)), func(p *goPackage) bool { return p.module != module })
}

var parseAll = sync.OnceValues(func() ([]*goPackage, error) {
	names, err := filesNamed(".", ".go")
	if err != nil {
		return nil, err
	}
	byDir := map[string]*goPackage{}
	var found []*goPackage
	for _, name := range names {
		f, err := parseFile(name)
		if err != nil {
			return nil, err
		}
		if strings.Contains(f.head(), "//go:build ignore") {
			continue // a program for go run
		}
		dir := path.Dir(name)
		if byDir[dir] == nil {
			byDir[dir] = &goPackage{dir: dir, module: moduleOf(dir)}
			found = append(found, byDir[dir])
		}
		byDir[dir].files = append(byDir[dir].files, f)
	}
	return found, nil
})

func parseFile(name string) (*goFile, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return &goFile{name, string(text), parsed, fset}, err
}

// filesNamed lists the files under dir with this extension, except those that the go command
// ignores, and bin.
func filesNamed(dir, ext string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != dir && (d.Name() == "testdata" || d.Name() == "bin" || strings.ContainsAny(d.Name()[:1], "._")) {
			return filepath.SkipDir
		}
		if d.Type().IsRegular() && path.Ext(name) == ext {
			names = append(names, filepath.ToSlash(name))
		}
		return nil
	})
	return names, err
}

// moduleOf returns the nearest folder at or above dir that has a go.mod.
func moduleOf(dir string) string {
	for dir != "." {
		if _, err := os.Stat(path.Join(dir, "go.mod")); err == nil {
			break
		}
		dir = path.Dir(dir)
	}
	return dir
}

// row returns the row of mayImport for a folder. An internal package without a row has the one of
// the folder that it belongs to.
func row(dir string) string {
	if _, ok := mayImport[dir]; ok {
		return dir
	}
	above, _, _ := strings.Cut(dir, "/internal/")
	return above
}

func (p *goPackage) row() string { return row(p.dir) }

func (p *goPackage) production() []*goFile {
	return slices.DeleteFunc(slices.Clone(p.files), (*goFile).test)
}

func (p *goPackage) onlyTests() bool { return len(p.production()) == 0 }

func (p *goPackage) name() string { return strings.TrimSuffix(p.files[0].ast.Name.Name, "_test") }

// generated reports whether all files of the package are generated.
func (p *goPackage) generated() bool {
	return !slices.ContainsFunc(p.production(), func(f *goFile) bool { return !ast.IsGenerated(f.ast) })
}

func (f *goFile) test() bool { return strings.HasSuffix(f.path, "_test.go") }

// head returns the text above the package comment.
func (f *goFile) head() string {
	end := f.ast.Package
	if f.ast.Doc != nil {
		end = f.ast.Doc.Pos()
	}
	return f.text[:f.fset.Position(end).Offset]
}

func (f *goFile) imports() []string {
	var paths []string
	for _, spec := range f.ast.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

// funcs returns the declared functions by name, methods as Type.Method.
func (f *goFile) funcs() map[string]*ast.FuncDecl {
	byName := map[string]*ast.FuncDecl{}
	for _, decl := range f.ast.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok {
			byName[receiver(fn)+fn.Name.Name] = fn
		}
	}
	return byName
}

func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return ""
	}
	name := ""
	ast.Inspect(fn.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name + "."
		}
		return name == ""
	})
	return name
}

// calls returns the calls of pkg.name for any of the names, or of all functions in pkg without
// names.
func (f *goFile) calls(pkg string, names ...string) []*ast.CallExpr {
	var found []*ast.CallExpr
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if name, ok := selected(call.Fun, pkg); ok && (len(names) == 0 || slices.Contains(names, name)) {
				found = append(found, call)
			}
		}
		return true
	})
	return found
}

// selected returns name if e is pkg.name.
func selected(e ast.Expr, pkg string) (name string, ok bool) {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	x, ok := sel.X.(*ast.Ident)
	return sel.Sel.Name, ok && x.Name == pkg
}

func (f *goFile) line(n ast.Node) int { return f.fset.Position(n.Pos()).Line }

func (f *goFile) textOf(line int) string { return strings.Split(f.text, "\n")[line-1] }

func (f *goFile) commentOn(line int) bool {
	return slices.ContainsFunc(f.ast.Comments, func(c *ast.CommentGroup) bool {
		return f.line(c) <= line && line <= f.fset.Position(c.End()).Line
	})
}

// matches reports whether a key of onlyIn applies to an import.
func matches(imp, key string) bool {
	return imp == key || strings.HasSuffix(key, "/") && strings.HasPrefix(imp+"/", key)
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	testkit.NoError(t, err)
	return string(text)
}

// A snippet is a block of Go or of a patch in a document, and the file that it claims to be from.
type snippet struct {
	from  string
	line  int
	lines []string
}

var fromComment = regexp.MustCompile(`^<!-- from (\S+) -->$`)

func snippets(doc string) []snippet {
	var found []snippet
	var current *snippet
	from := ""
	for i, line := range strings.Split(doc, "\n") {
		switch text := strings.TrimSpace(line); {
		case current != nil && text == "```":
			found, current, from = append(found, *current), nil, ""
		case current != nil:
			current.lines = append(current.lines, text)
		case text == "```go" || text == "```diff":
			current = &snippet{from: from, line: i + 1}
		case text != "":
			from = ""
			if m := fromComment.FindStringSubmatch(text); m != nil {
				from = m[1]
			}
		}
	}
	return found
}

// missingFrom returns the first part of the snippet that the source does not have, or "".
func (s snippet) missingFrom(source string) string {
	rest := trimmedLines(source)
	var part []string
	for _, line := range append(s.lines, "...") {
		if line != "..." {
			part = append(part, line)
			continue
		}
		text := "\n" + strings.Trim(strings.Join(part, "\n"), "\n") + "\n"
		at := strings.Index(rest, text)
		if at < 0 {
			return text
		}
		rest, part = rest[at+len(text)-1:], nil
	}
	return ""
}

func trimmedLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return "\n" + strings.Join(lines, "\n") + "\n"
}
