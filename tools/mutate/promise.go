// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/setpoint-dev/setpoint/tools/internal/mutation"
)

// A promise is an item of the list "Guarantees" in a package doc.
type promise struct {
	number   string
	sentence string // one or several, without the details
	dir      string // of the package
}

// sections returns the letters of the numbers in the order of docs/guarantees.md, with its
// headings.
func sections() []struct{ letter, title string } {
	return []struct{ letter, title string }{
		{"W", "Workqueue"}, {"S", "Cache and source"}, {"F", "Packed caches"}, {"C", "Controller"},
		{"L", "Leadership"}, {"P", "Shard"}, {"M", "Manager"}, {"K", "Children"}, {"N", "Events"},
		{"E", "Envtest"}, {"V", "Envtest/sim"}, {"A", "Webhook"},
	}
}

var (
	promiseList = regexp.MustCompile(`(?s)# Guarantees\n(.*?)(\n# |$)`)
	promiseItem = regexp.MustCompile(`(?m)^  - ([A-Z][0-9]+): (.*(?:\n    .*)*)`)
	docLink     = regexp.MustCompile(`\[([\w.]+)\]((?:\.\w+)*)`)
)

// readPromises returns the promises of all package docs, ordered as in docs/guarantees.md.
func readPromises(root string) ([]promise, error) {
	dirs, err := mutation.NewCode(root).Dirs()
	if err != nil {
		return nil, err
	}
	var all []promise
	for _, dir := range dirs {
		text, err := os.ReadFile(filepath.Join(root, dir, "doc.go"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		of, err := promisesOf(dir, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return inOrder(all)
}

func promisesOf(dir, text string) ([]promise, error) {
	file, err := parser.ParseFile(token.NewFileSet(), dir+"/doc.go", text, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		return nil, err
	}
	list := promiseList.FindStringSubmatch(file.Doc.Text())
	if list == nil {
		return nil, nil
	}
	var all []promise
	for _, m := range promiseItem.FindAllStringSubmatch(list[1], -1) {
		sentence, _, _ := strings.Cut(strings.Join(strings.Fields(m[2]), " "), " Details: ")
		all = append(all, promise{m[1], docLink.ReplaceAllString(sentence, "`$1$2`"), dir})
	}
	return all, nil
}

func inOrder(all []promise) ([]promise, error) {
	place := func(p promise) int {
		for i, s := range sections() {
			if s.letter == p.number[:1] {
				n, _ := strconv.Atoi(p.number[1:])
				return 1000*i + n
			}
		}
		return -1
	}
	slices.SortStableFunc(all, func(a, b promise) int { return cmp.Compare(place(a), place(b)) })
	var errs []error
	for i, p := range all {
		if i > 0 && all[i-1].number == p.number {
			errs = append(errs, fmt.Errorf("the docs of packages %s and %s both promise %s; a number has one place, so write \"For %s\" in the other",
				all[i-1].dir, p.dir, p.number, p.number))
		}
		if place(p) < 0 {
			errs = append(errs, fmt.Errorf("%s of package %s has no section; add its letter to sections in tools/mutate", p.number, p.dir))
		}
	}
	return all, errors.Join(errs...)
}

// promiseTable returns docs/guarantees.md.
func promiseTable(all []promise) string {
	text := "# Guarantees\n\n" +
		"Setpoint's promises, by number. The package docs state them with their details; `make guarantees`\n" +
		"writes this page from the docs. [How each guarantee is tested](guarantees-tests.md) lists the\n" +
		"tests, each with a change to the code that it detects. `make mutate` makes these changes and runs\n" +
		"the tests.\n"
	for _, s := range sections() {
		rows := ""
		for _, p := range all {
			if p.number[:1] == s.letter {
				rows += "| " + p.number + " | " + strings.ReplaceAll(p.sentence, "|", `\|`) + " |\n"
			}
		}
		if rows != "" {
			text += "\n## " + s.title + "\n\n| # | Promise |\n|---|---|\n" + rows
		}
	}
	return text
}
