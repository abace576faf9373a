// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package setpoint_test

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading      = regexp.MustCompile(`(?m)^#+ (.*)$`)
	codeBlock    = regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`")
)

// TestLinks finds links between documents to a file or a heading that does not exist.
func TestLinks(t *testing.T) {
	docs, err := filesNamed(".", ".md")
	testkit.NoError(t, err)
	for _, doc := range docs {
		for _, m := range markdownLink.FindAllStringSubmatch(codeBlock.ReplaceAllString(read(t, doc), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			name, anchor, _ := strings.Cut(m[1], "#")
			target := doc
			if name != "" {
				target = path.Join(path.Dir(doc), name)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist", doc, m[1])
			} else if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s links to %s, and %s has no such heading", doc, m[1], target)
			}
		}
	}
}

// TestPathOfAnEvent finds a file in the package doc that does not exist.
func TestPathOfAnEvent(t *testing.T) {
	files := regexp.MustCompile(`[a-z/]+/[a-z_]+\.go\b`).FindAllString(read(t, "doc.go"), -1)
	if len(files) < 10 {
		t.Errorf("doc.go names the files %v, want at least ten", files)
	}
	for _, f := range files {
		testkit.Equal(t, testkit.Err(os.Stat(f)), nil, "doc.go")
	}
}

// anchors returns the anchors that GitHub makes of the headings of a document.
func anchors(doc string) []string {
	var found []string
	for _, m := range heading.FindAllStringSubmatch(doc, -1) {
		var b strings.Builder
		for _, r := range strings.ToLower(m[1]) {
			switch {
			case r == ' ':
				b.WriteRune('-')
			case r == '-' || r == '_' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
				b.WriteRune(r)
			}
		}
		found = append(found, b.String())
	}
	return found
}

var quoted = regexp.MustCompile("(?m)^\\| `([a-zA-Z][^`]* [^`]*)`")

// TestTroubleshooting_QuotesTheCode requires that each message in the first column of
// docs/troubleshooting.md and docs/scale-out.md is part of a string in the library, or in
// Kubernetes.
func TestTroubleshooting_QuotesTheCode(t *testing.T) {
	var code strings.Builder
	for _, p := range library(t) {
		for _, f := range p.production() {
			code.WriteString(f.text)
		}
	}
	for page, least := range map[string]int{"docs/troubleshooting.md": 20, "docs/scale-out.md": 15} {
		quotes := quoted.FindAllStringSubmatch(read(t, page), -1)
		if len(quotes) < least {
			t.Errorf("%s has %d quotes, fewer than expected", page, len(quotes))
		}
		for _, m := range quotes {
			if !strings.Contains(code.String(), m[1]) {
				t.Errorf("%s quotes %q, which no message contains: update the page", page, m[1])
			}
		}
	}
}

// TestRecipes_FitTheTemplate requires that the template has the targets of make and the files that
// the commands of docs/recipes.md name.
func TestRecipes_FitTheTemplate(t *testing.T) {
	page, makefile := read(t, "docs/recipes.md"), read(t, "examples/template/Makefile")
	targets := regexp.MustCompile("(?m)(?:^|`)make ([a-z]+)").FindAllStringSubmatch(page, -1)
	files := regexp.MustCompile(`[ ./](config(?:/[a-z.]+)*)`).FindAllStringSubmatch(page, -1)
	if len(targets) < 5 || len(files) < 4 {
		t.Errorf("docs/recipes.md has %d targets of make and %d files of config, fewer than expected", len(targets), len(files))
	}
	for _, m := range targets {
		if !strings.Contains(makefile, "\n"+m[1]+": ##") {
			t.Errorf("docs/recipes.md calls make %s, and examples/template/Makefile has no such target", m[1])
		}
	}
	for _, m := range files {
		testkit.Equal(t, testkit.Err(os.Stat(path.Join("examples/template", m[1]))), nil, "docs/recipes.md")
	}
	deployment := read(t, "examples/template/config/manager/deployment.yaml")
	for _, used := range []string{"image: sample-operator:dev", "namespace: sample-operator-system", "name: sample-operator\n"} {
		testkit.Contains(t, deployment, used, fmt.Sprintf("docs/recipes.md relies on %q, and the template's Deployment has another", used))
	}
}

// TestMoving_AnswersASearch requires that docs/controller-runtime.md contains the names that users
// of controller-runtime and client-go search for.
func TestMoving_AnswersASearch(t *testing.T) {
	page := read(t, "docs/controller-runtime.md")
	for _, name := range []string{
		"IndexField", "MatchingFields", "CreateOrUpdate", "Status()", "UpdateStatus", "AddFinalizer",
		"SetControllerReference", "NewControllerRef", "IgnoreNotFound", "log.FromContext", "RateLimiter",
		"SyncPeriod", "NeedLeaderElection", "MergeFrom", "DefaultNamespaces", "WATCH_NAMESPACE",
		"OnlyMetadata", "EventRecorder", "WithOptions", "Priority", "interceptor", "fake client",
		"CreateOrPatch", "MergeFromWithOptimisticLock", "DeleteAllOf", "Status().Update", "Status().Patch", "SubResource",
		"ObjectKeyFromObject", "DryRun", "FieldOwner", "ForceOwnership", "FieldValidation", "GetRESTMapper",
		"EnableReadYourWritesConsistency",
	} {
		testkit.Contains(t, page, name, fmt.Sprintf("docs/controller-runtime.md has no answer for %s", name))
	}
}

var (
	footnote   = regexp.MustCompile(`\[\^([a-z0-9-]+)\]`)
	definition = regexp.MustCompile(`(?m)^\[\^([a-z0-9-]+)\]: .*https://`)
)

// TestComparison_EachCellHasASource requires a footnote or a link in each cell of the feature
// tables, unless it reads "not known". Each footnote has a definition with an address, and is used.
func TestComparison_EachCellHasASource(t *testing.T) {
	page := read(t, "docs/comparison.md")
	features, _, _ := strings.Cut(page, "## Figures")
	rows := 0
	for _, line := range strings.Split(features, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 7 || strings.Contains(line, "| Setpoint |") {
			continue
		}
		rows++
		for _, cell := range cells[1:] {
			if cell != "not known" && !strings.Contains(cell, "](") && !footnote.MatchString(cell) {
				t.Errorf("docs/comparison.md, line %q: the cell %q has no source: add a footnote, or write \"not known\"", cells[0], cell)
			}
		}
	}
	if rows < 25 {
		t.Errorf("docs/comparison.md compares %d features, fewer than expected", rows)
	}
	defined := map[string]int{}
	for _, m := range definition.FindAllStringSubmatch(page, -1) {
		defined[m[1]] = 0
	}
	for _, m := range footnote.FindAllStringSubmatch(page, -1) {
		if _, ok := defined[m[1]]; !ok {
			t.Errorf("docs/comparison.md: the footnote %s has no definition with an address", m[1])
		}
		defined[m[1]]++
	}
	for name, times := range defined {
		if times < 2 {
			t.Errorf("docs/comparison.md: nothing uses the footnote %s", name)
		}
	}
}
