// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// check returns the findings in a file, by line.
func check(name, text string, numbers map[string]bool) ([]finding, error) {
	var found []finding
	if strings.HasSuffix(name, ".go") {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if ast.IsGenerated(file) {
			return nil, nil
		}
		found = checkComments(fset, file, strings.Split(text, "\n"))
		if !strings.HasSuffix(name, "_test.go") && !forTests(name) {
			found = append(found, checkStrings(fset, file, numbers)...)
		}
	} else {
		for _, b := range paragraphs(text) {
			found = append(found, b.checkWords()...)
			if name != "docs/guarantees.md" && !forTests(name) {
				found = append(found, b.checkNumbers(numbers)...)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b finding) int { return cmp.Compare(a.line, b.line) })
	return found, nil
}

// forTests reports whether a file is for developers who test guarantees, so that it may name them.
func forTests(name string) bool {
	return strings.HasPrefix(name, "tools/") || strings.HasPrefix(name, "e2e/")
}

var (
	// directive also matches the markers of controller-gen.
	directive = regexp.MustCompile(`^//(?:[a-z]+:|nolint\b| *\+)`)
	output    = regexp.MustCompile(`(?i)^//\s*(?:unordered )?output:`)
)

// checkComments applies the rules for words and width to the comments of a file.
func checkComments(fset *token.FileSet, file *ast.File, source []string) []finding {
	var found []finding
	for _, group := range file.Comments {
		var text block
		flush := func() {
			found = append(found, text.checkWords()...)
			text = block{}
		}
		for _, c := range group.List {
			if output.MatchString(c.Text) {
				break
			}
			if directive.MatchString(c.Text) {
				flush()
				continue
			}
			for i, line := range strings.Split(c.Text, "\n") {
				at := fset.Position(c.Pos()).Line + i
				line = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(line, "//"), "/*"), "*/")
				if strings.HasPrefix(line, "\t") {
					flush() // a code sample
					continue
				}
				if n := width(source[at-1]); n > columns && !strings.Contains(line, "://") {
					found = append(found, finding{at, fmt.Sprintf(
						"%d columns: wrap comments at %d, and put one that does not fit behind its code above it", n, columns)})
				}
				if strings.TrimSpace(line) == "" {
					flush()
					continue
				}
				if len(text.lines) == 0 {
					text.line = at
				}
				text.lines = append(text.lines, line)
			}
		}
		flush()
	}
	return found
}

// checkStrings finds guarantee numbers in string literals, which may become log lines and errors.
func checkStrings(fset *token.FileSet, file *ast.File, numbers map[string]bool) []finding {
	var found []finding
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				b := block{fset.Position(lit.Pos()).Line, []string{strings.ReplaceAll(text, "\n", " ")}}
				found = append(found, b.checkNumbers(numbers)...)
			}
		}
		return true
	})
	return found
}

// paragraphs returns the text of a Markdown file without code. A paragraph ends at an empty line.
func paragraphs(text string) []block {
	var found []block
	var current block
	flush := func() {
		if len(current.lines) > 0 {
			found = append(found, current)
		}
		current = block{}
	}
	fence := ""
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case fence != "":
			if trimmed == fence {
				fence = ""
			}
		case strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~"):
			flush()
			fence = trimmed[:3]
		case trimmed == "" || strings.HasPrefix(line, "    ") && len(current.lines) == 0:
			flush()
		default:
			if len(current.lines) == 0 {
				current.line = i + 1
			}
			current.lines = append(current.lines, line)
		}
	}
	flush()
	return found
}
