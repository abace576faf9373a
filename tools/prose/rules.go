// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
)

// columns is the width of a comment. A tab counts as tabWidth.
const columns, tabWidth = 100, 4

// words are patterns that make text hard to read, each with its remedy. A space in a pattern also
// matches the end of a line.
var words = []struct {
	pattern *regexp.Regexp
	remedy  string
}{
	{
		phrase(`nobody|somebody|everybody|anybody|whoever|whom|one who`),
		`write about you and the thing: "no controller", "if you need X, set Y"`,
	},
	{
		phrase(`(?:says?|said|tells?|told) (?:whether|what|why|which|how|when|if|where|that|of)`),
		`write "reports whether", "returns", "records", "names" or "describes"`,
	},
	{
		phrase(`anew|all the same|likewise|be it|takes down`),
		`use today's word: "again", "still", "also", "whether", "records"`,
	},
	{
		phrase(`besides`),
		`write "also", "next to" or "except"`,
	},
	{
		phrase(`of which|that of|those of`),
		`start a new sentence, or repeat the noun`,
	},
	{
		phrase(`so many|so often`),
		`give the number or the limit`,
	},
	{
		phrase(`the one or the other`),
		`name both`,
	},
}

func phrase(alternatives string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(?:` + strings.ReplaceAll(alternatives, " ", `\s+`) + `)\b`)
}

type finding struct {
	line    int
	message string
}

// block is a run of lines that is read as one text.
type block struct {
	line  int // of the first
	lines []string
}

// checkWords finds words of the list, also where a phrase goes on in the next line.
func (b block) checkWords() []finding {
	text := maskCode(strings.Join(b.lines, "\n"))
	var found []finding
	for _, w := range words {
		for _, at := range w.pattern.FindAllStringIndex(text, -1) {
			match := strings.Join(strings.Fields(text[at[0]:at[1]]), " ")
			found = append(found, finding{b.lineAt(text, at[0]), fmt.Sprintf("%q: %s", match, w.remedy)})
		}
	}
	return found
}

// checkNumbers finds guarantee numbers.
func (b block) checkNumbers(numbers map[string]bool) []finding {
	text := maskCode(strings.Join(b.lines, "\n"))
	var found []finding
	for _, at := range number.FindAllStringIndex(text, -1) {
		if n := text[at[0]:at[1]]; numbers[n] {
			found = append(found, finding{b.lineAt(text, at[0]), fmt.Sprintf(
				"%q: users do not know guarantee numbers: describe the behaviour, and link docs/guarantees.md if you must", n)})
		}
	}
	return found
}

func (b block) lineAt(text string, offset int) int {
	return b.line + strings.Count(text[:offset], "\n")
}

var inBackquotes = regexp.MustCompile("`[^`]*`")

// maskCode blanks what stands in backquotes, and keeps the line ends.
func maskCode(text string) string {
	return inBackquotes.ReplaceAllStringFunc(text, func(code string) string {
		return "`" + strings.Repeat("\n", strings.Count(code, "\n")) + "`"
	})
}

var (
	number = regexp.MustCompile(`\b[A-Z]\d+\b`)
	row    = regexp.MustCompile(`(?m)^\| *([A-Z]\d+) *\|`)
)

// guaranteeNumbers returns the first column of the tables in docs/guarantees.md.
func guaranteeNumbers(table string) map[string]bool {
	numbers := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(table, -1) {
		numbers[m[1]] = true
	}
	return numbers
}

// width returns the columns that a line takes up.
func width(line string) int {
	n := 0
	for _, r := range line {
		if r == '\t' {
			n += tabWidth - n%tabWidth
		} else {
			n++
		}
	}
	return n
}
