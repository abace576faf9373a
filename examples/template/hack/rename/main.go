// Rename names the template after a kind of yours, in the text of all files and in their names, and
// then deletes itself. Run it in the root of the copy:
//
//	go run ./hack/rename -kind Proxy -group net.example.org -module example.org/proxy
//
// The plural is in lower case and follows the usual rules (proxies); -plural sets another one. Run
// `go generate ./...` after it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// What the template is called.
const (
	kind   = "Greeting"
	plural = "greetings"
	group  = "demo.example.com"
	module = "github.com/setpoint-dev/setpoint/examples/template"
)

type names struct{ kind, plural, group, module string }

func main() {
	var n names
	flag.StringVar(&n.kind, "kind", "", "`kind`, such as Proxy")
	flag.StringVar(&n.plural, "plural", "", "`plural` in lower case (default: by the usual rules, such as proxies)")
	flag.StringVar(&n.group, "group", "", "API `group`, such as net.example.org")
	flag.StringVar(&n.module, "module", "", "Go `module`, such as example.org/proxy")
	flag.Parse()
	if err := rename(".", n); err != nil {
		fmt.Fprintln(os.Stderr, "rename:", err)
		os.Exit(1)
	}
}

var (
	validKind   = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)
	validPlural = regexp.MustCompile(`^[a-z][a-z0-9]{0,62}$`)
	validGroup  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`)
)

func (n names) validate() error {
	switch {
	case !validKind.MatchString(n.kind):
		return fmt.Errorf("-kind %q: want letters and digits, a capital first, such as Proxy", n.kind)
	case !validPlural.MatchString(n.plural):
		return fmt.Errorf("-plural %q: want lower-case letters and digits, such as proxies", n.plural)
	case !validGroup.MatchString(n.group):
		return fmt.Errorf("-group %q: want a domain, such as net.example.org", n.group)
	case n.module == "" || strings.ContainsAny(n.module, " \t\"'"):
		return fmt.Errorf("-module %q: want a module path, such as example.org/proxy", n.module)
	}
	return nil
}

// rename changes all files below dir, except .git.
func rename(dir string, n names) error {
	if n.plural == "" {
		n.plural = pluralOf(strings.ToLower(n.kind))
	}
	if err := n.validate(); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(dir, "hack")); err != nil {
		return err
	}
	r := strings.NewReplacer( // the first that matches counts
		module, n.module,
		group, n.group,
		plural, n.plural,
		kind, n.kind,
		strings.ToLower(kind), strings.ToLower(n.kind),
		"-include hack/rename/rename.mk\n", "",
	)
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == ".git" {
			return filepath.SkipDir
		}
		if !d.Type().IsRegular() {
			return nil
		}
		return renameFile(name, r)
	})
}

func renameFile(name string, r *strings.Replacer) error {
	before, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	after := []byte(r.Replace(string(before)))
	if filepath.Ext(name) == ".go" {
		if after, err = format.Source(after); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	dir, base := filepath.Split(name)
	if base == "role.yaml" {
		after = []byte(sortRules(string(after)))
	}
	to := dir + r.Replace(base)
	if to != name {
		if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s exists; remove it first", to)
		}
		if err := os.Rename(name, to); err != nil {
			return err
		}
	}
	return os.WriteFile(to, after, 0o644)
}

// sortRules sorts the rules of each role by API group, as the generator does.
func sortRules(roles string) string {
	const rule = "- apiGroups:\n"
	documents := strings.Split(roles, "---\n")
	for i, document := range documents {
		head, rules, _ := strings.Cut(document, rule)
		all := strings.Split(rules, rule)
		slices.SortStableFunc(all, func(a, b string) int {
			groupA, _, _ := strings.Cut(a, "\n")
			groupB, _, _ := strings.Cut(b, "\n")
			return strings.Compare(strings.Trim(groupA, ` -"`), strings.Trim(groupB, ` -"`))
		})
		if rules != "" {
			documents[i] = head + rule + strings.Join(all, rule)
		}
	}
	return strings.Join(documents, "---\n")
}

// pluralOf returns the plural of a lower-case noun.
func pluralOf(noun string) string {
	stem, y := strings.CutSuffix(noun, "y")
	switch {
	case y && stem != "" && !strings.ContainsAny(stem[len(stem)-1:], "aeiou"):
		return stem + "ies"
	case regexp.MustCompile(`(s|x|z|ch|sh)$`).MatchString(noun):
		return noun + "es"
	}
	return noun + "s"
}
