// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
)

// The least similarity of a piece to code that has drifted from it, in its function and in another
// one: the tokens that both have in the same order, as a share of all.
const (
	alike     = 0.6
	veryAlike = 0.75
)

// similar returns the expression, statement or clause in a scope that resembles a piece most, with
// the change to next.
func (c code) similar(sc scope, want []lexeme, piece, next string) (best place, ok bool) {
	if len(want) < enoughTokens {
		return best, false
	}
	likeness, kind := sc.alike, kindOf(piece)
	_ = c.each(sc, func(s source, d decl) { // exact has read all files
		for _, found := range spans(d, kind) {
			sum := float64(len(want) + len(found))
			if 2*float64(min(len(want), len(found)))/sum <= likeness {
				continue
			}
			l := 2 * float64(len(pairs(want, found))) / sum
			if l <= likeness {
				continue
			}
			if text, merges := merge(want, found, lexemes(next), s.text, next); merges {
				likeness, ok = l, true
				best = place{in: s, from: found[0].from, to: found[len(found)-1].to, text: text}
			}
		}
	})
	return best, ok
}

// kindOf returns the kind of an expression, or nil for other code.
func kindOf(piece string) reflect.Type {
	e, err := parser.ParseExpr(piece)
	if err != nil {
		return nil
	}
	return reflect.TypeOf(e)
}

// spans returns the tokens of each node of a kind, or of any. The head of an if statement, a loop
// or a case counts as a node.
func spans(d decl, kind reflect.Type) [][]lexeme {
	var all [][]lexeme
	add := func(from, to token.Pos) {
		if span := between(d.tokens, d.offset(from), d.offset(to)); len(span) > 0 {
			all = append(all, span)
		}
	}
	ast.Inspect(d.node, func(n ast.Node) bool {
		if n == nil || kind != nil && kind != reflect.TypeOf(n) {
			return n != nil
		}
		switch n := n.(type) {
		case *ast.IfStmt:
			add(n.Pos(), n.Body.Lbrace+1)
		case *ast.ForStmt:
			add(n.Pos(), n.Body.Lbrace+1)
		case *ast.CaseClause:
			add(n.Pos(), n.Colon+1)
		}
		add(n.Pos(), n.End())
		return true
	})
	return all
}

// pairs returns the longest sequence of tokens that a and b share, as indexes into both. The case
// of letters does not count: a name may become exported.
func pairs(a, b []lexeme) [][2]int {
	longest := make([][]int, len(a)+1)
	for i := range longest {
		longest[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			if strings.EqualFold(a[i].text, b[j].text) {
				longest[i][j] = max(longest[i][j], 1+longest[i+1][j+1])
			}
		}
	}
	var shared [][2]int
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case strings.EqualFold(a[i].text, b[j].text) && longest[i][j] == 1+longest[i+1][j+1]:
			shared = append(shared, [2]int{i, j})
			i, j = i+1, j+1
		case longest[i+1][j] >= longest[i][j+1]:
			i++
		default:
			j++
		}
	}
	return shared
}

// merge returns the found code with the change from the piece want to the code next, or false if
// the change and the drift meet. Names that have changed in the found code change in next too.
func merge(want, found, next []lexeme, foundText, nextText string) (string, bool) {
	counterpart, renamed := drift(want, found)
	merged, kept, done := "", 0, 0 // in found, and in next
	keep := func(until int) {
		if kept < until {
			from := found[kept].from
			if kept > 0 {
				from = found[kept-1].to
			}
			merged += foundText[from:found[until-1].to]
		}
	}
	at := -1 // the last token of want that next keeps
	for _, p := range append(pairs(want, next), [2]int{len(want), len(next)}) {
		if p[0] > at+1 || p[1] > done {
			before, ok1 := counterpart[at]
			after, ok2 := counterpart[p[0]]
			if !ok1 || !ok2 {
				return "", false
			}
			if after > before+2 && found[after-1].text == "." && isNew(counterpart, after-2) {
				after -= 2 // a new qualifier belongs to its name
			}
			keep(before + 1)
			if kept = after; p[0] == at+1 { // nothing is removed
				kept = before + 1
			}
			for i := done; i < p[1]; i++ {
				text, gap := next[i].text, " "
				if name, ok := renamed[text]; ok {
					text = name
				}
				if i > 0 {
					gap += nextText[next[i-1].to:next[i].from]
				}
				merged += gap + text
			}
		}
		at, done = p[0], p[1]+1
	}
	keep(len(found))
	return merged, true
}

func isNew(counterpart map[int]int, token int) bool {
	for _, of := range counterpart {
		if of == token {
			return false
		}
	}
	return true
}

// drift returns which token of found is the counterpart of each token of want, and of the places
// before and after all, and how names have changed.
func drift(want, found []lexeme) (counterpart map[int]int, renamed map[string]string) {
	counterpart, renamed = map[int]int{-1: -1}, map[string]string{}
	add := func(i, j int) {
		counterpart[i] = j
		if i < len(want) && token.IsIdentifier(want[i].text) {
			renamed[want[i].text] = found[j].text
		}
	}
	from, to := -1, -1
	for _, p := range append(pairs(want, found), [2]int{len(want), len(found)}) {
		if p[0] == from+2 && p[1] == to+2 && token.IsIdentifier(found[to+1].text) && token.IsIdentifier(want[from+1].text) {
			add(from+1, to+1)
		}
		from, to = p[0], p[1]
		add(from, to)
	}
	return counterpart, renamed
}
