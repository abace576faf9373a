// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command llms writes docs/llms.txt, an index of the documentation for coding assistants, in the
// form of https://llmstxt.org. It lists the pages and packages that README.md links to, each with
// the first paragraph of the page or the cell of the table:
//
//	make llms
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	repository = "https://github.com/setpoint-dev/setpoint/blob/main/"
	reference  = "https://pkg.go.dev/github.com/setpoint-dev/setpoint/"
)

func main() {
	if err := write("../.."); err != nil {
		fmt.Fprintln(os.Stderr, "llms:", err)
		os.Exit(1)
	}
}

func write(root string) error {
	text, err := index(root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "docs", "llms.txt"), []byte(text), 0o644)
}

var (
	pageLink    = regexp.MustCompile(`\]\(docs/([a-z-]+\.md)(?:#[a-z-]*)?\)`)
	packageRow  = regexp.MustCompile("(?m)^\\| (\\[`.*) \\| (.*) \\|$")
	packageLink = regexp.MustCompile("\\[`([a-z/]+)`\\]")
)

// index returns the text of docs/llms.txt. It is an error if README.md does not link to a page.
func index(root string) (string, error) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		return "", err
	}
	_, summary := opening(string(readme))
	text := "# Setpoint\n\n> " + summary + "\n\n## Guides\n\n"
	guides := string(readme)
	guides = guides[strings.Index(guides, "| guide |")+1:]
	pages := []string{"guarantees-tests.md"} // generated
	for _, m := range pageLink.FindAllStringSubmatch(guides, -1) {
		if slices.Contains(pages, m[1]) {
			continue
		}
		pages = append(pages, m[1])
		page, err := os.ReadFile(filepath.Join(root, "docs", m[1]))
		if err != nil {
			return "", err
		}
		title, about := opening(string(page))
		text += fmt.Sprintf("- [%s](%sdocs/%s): %s\n", title, repository, m[1], about)
	}
	text += "\n## Packages\n\n"
	for _, m := range packageRow.FindAllStringSubmatch(string(readme), -1) {
		names, about := packageLink.FindAllStringSubmatch(m[1], -1), strings.Split(m[2], "; ")
		if len(about) != len(names) {
			about = slices.Repeat([]string{m[2]}, len(names)) // one text for all
		}
		for i, p := range names {
			text += fmt.Sprintf("- [%s](%s%s): %s\n", p[1], reference, p[1], about[i])
		}
	}
	return text, complete(root, pages)
}

// complete returns an error that names each page of docs/ that is not in pages.
func complete(root string, pages []string) error {
	names, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if base := filepath.Base(name); !slices.Contains(pages, base) {
			errs = append(errs, fmt.Errorf("docs/%s is not in the table of guides in README.md; add it", base))
		}
	}
	return errors.Join(errs...)
}

var link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// opening returns the title of a page and its first paragraph in one line, without links.
func opening(page string) (title, paragraph string) {
	title, rest, _ := strings.Cut(page, "\n\n")
	paragraph, _, _ = strings.Cut(strings.TrimSpace(rest), "\n\n")
	return strings.TrimPrefix(title, "# "), link.ReplaceAllString(strings.Join(strings.Fields(paragraph), " "), "$1")
}
