// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"sync"
)

// A source is a file of Go code.
type source struct {
	name   string // relative to the root
	text   string
	tokens []string
	starts []int // offsets of the tokens in the text
	decls  []decl
}

// A decl is a declaration at the top level of a file.
type decl struct {
	names []string      // such as "take" or "core.take"
	nodes func() []node // the first is the whole declaration
}

// A node is a part of the code that a change may replace: an expression, a statement, several
// statements of a block, or the head of a clause, such as "if a {".
type node struct {
	in       *source
	kind     string
	from, to int // tokens
}

func (n node) tokens() []string { return n.in.tokens[n.from:n.to] }

func (n node) offsets() (from, to int) {
	return n.in.starts[n.from], n.in.starts[n.to-1] + len(n.in.tokens[n.to-1])
}

func (n node) String() string {
	from, _ := n.offsets()
	return fmt.Sprintf("%s:%d", n.in.name, 1+strings.Count(n.in.text[:from], "\n"))
}

func (n node) meets(o node) bool { return n.in == o.in && n.from < o.to && o.from < n.to }

func parseSource(name, text string) (*source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := &source{name: name, text: text}
	s.tokens, s.starts = scan(text)
	index := func(p token.Pos) int {
		i, _ := slices.BinarySearch(s.starts, fset.File(p).Offset(p))
		return i
	}
	add := func(n ast.Node, names ...string) {
		s.decls = append(s.decls, decl{names, sync.OnceValue(func() (all []node) {
			walk(n, func(kind string, from, to token.Pos) {
				n := node{s, kind, index(from), index(to)}
				if last := len(all) - 1; n.from < n.to && (last < 0 || all[last].from != n.from || all[last].to != n.to) {
					all = append(all, n)
				}
			})
			return all
		})})
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(d, functionName(d))
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				node := ast.Node(d)
				if d.Lparen.IsValid() {
					node = spec
				}
				add(node, specNames(spec)...)
			}
		}
	}
	return s, nil
}

// walk calls add for each node below n.
func walk(n ast.Node, add func(kind string, from, to token.Pos)) {
	several := func(list []ast.Stmt) {
		for i, first := range list {
			for _, last := range list[i+1:] {
				add("statements", first.Pos(), last.End())
			}
		}
	}
	ast.PreorderStack(n, nil, func(n ast.Node, above []ast.Node) bool {
		add(kind(n), n.Pos(), n.End())
		switch n := n.(type) {
		case *ast.BlockStmt:
			head := above[len(above)-1]
			add(kind(head)+" {", head.Pos(), n.Lbrace+1)
			several(n.List)
		case *ast.CaseClause:
			add("case", n.Pos(), n.Colon+1)
			several(n.Body)
		case *ast.CommClause:
			add("case", n.Pos(), n.Colon+1)
			several(n.Body)
		}
		return true
	})
}

// kind returns what does not drift: the name of a called function, an operator, or the sort of a
// statement.
func kind(n ast.Node) string {
	switch n := n.(type) {
	case *ast.ExprStmt:
		return kind(n.X)
	case *ast.AssignStmt:
		return n.Tok.String() + kind(n.Rhs[0])
	case *ast.CallExpr:
		return kind(n.Fun) + "()"
	case *ast.SelectorExpr:
		return n.Sel.Name
	case *ast.Ident:
		return n.Name
	case *ast.UnaryExpr:
		return n.Op.String() + kind(n.X)
	case *ast.BinaryExpr:
		return n.Op.String()
	}
	return fmt.Sprintf("%T", n)
}

// functionName returns "take", or "core.take" for a method of core[K] or *core[K].
func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*"), "[")
	return name + "." + d.Name.Name
}

func specNames(spec ast.Spec) []string {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		return []string{s.Name.Name}
	case *ast.ValueSpec:
		var names []string
		for _, n := range s.Names {
			names = append(names, n.Name)
		}
		return names
	}
	return nil
}

// scan returns the tokens of Go code and their offsets. A line end that ends a statement is the
// token ";". A comma or semicolon before a closing bracket or the end does not count.
func scan(text string) (tokens []string, starts []int) {
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), func(token.Position, string) {}, 0)
	for {
		pos, tok, lit := s.Scan()
		if last := len(tokens) - 1; last >= 0 && slices.Contains([]token.Token{token.EOF, token.RPAREN, token.RBRACE, token.RBRACK}, tok) &&
			(tokens[last] == "," || tokens[last] == ";") {
			tokens, starts = tokens[:last], starts[:last]
		}
		if tok == token.EOF {
			return tokens, starts
		}
		if !tok.IsLiteral() && !tok.IsKeyword() {
			lit = tok.String()
		}
		tokens, starts = append(tokens, lit), append(starts, file.Offset(pos))
	}
}
