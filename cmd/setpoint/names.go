// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/mod/module"
	"k8s.io/apimachinery/pkg/util/validation"
)

// names has the names of an operator and of one of its kinds.
type names struct {
	name, module                 string
	kind, plural, group, version string
	clusterScoped                bool
	newVersion                   string // of add version
}

func (n *names) replacer() *strings.Replacer {
	t := inTemplate
	return strings.NewReplacer( // the first that matches counts
		t.module, n.module,
		t.name, n.name,
		t.group, n.group,
		t.version, n.version,
		t.newVersion, n.newVersion,
		exported(t.newVersion), exported(n.newVersion),
		t.plural, n.plural,
		t.kind, n.kind,
		strings.ToLower(t.kind), strings.ToLower(n.kind),
	)
}

// sample is the file with an object of the kind.
func (n *names) sample() string { return "config/samples/" + strings.ToLower(n.kind) + ".yaml" }

// described returns the names of the kind that the API server keeps, for a message.
func (n *names) described() string {
	return fmt.Sprintf("%s of the group %s, its plural is %s; these are hard to change later", n.kind, n.group, n.plural)
}

// exported returns a name that begins with a capital.
func exported(name string) string {
	if name == "" {
		return ""
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

// validateProject checks the names of an operator.
func (n *names) validateProject() error {
	if bad := validation.IsDNS1123Label(n.name); bad != nil || len(n.name) > 63-len("-system") {
		return fmt.Errorf("the name %q: want at most 56 lower-case letters, digits and dashes, such as shop-operator", n.name)
	}
	if n.module == "" {
		return errors.New("give the Go module with --module, such as example.org/shop-operator")
	}
	if err := module.CheckImportPath(n.module); err != nil {
		return fmt.Errorf("--module: %w", err)
	}
	if _, _, ok := module.SplitPathVersion(n.module); !ok {
		return fmt.Errorf("--module %s: Go refuses this version at the end; want none, or /v2 and higher (with gopkg.in: .v1 and higher)", n.module)
	}
	return nil
}

var validKind = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)

// validateKind checks the names of a kind, and sets its plural if it has none.
func (n *names) validateKind() error {
	if !validKind.MatchString(n.kind) {
		return fmt.Errorf("the kind %q: want letters and digits, a capital first, such as Shop", n.kind)
	}
	if n.plural == "" {
		n.plural = pluralOf(strings.ToLower(n.kind))
	}
	if bad := validation.IsDNS1035Label(n.plural); bad != nil {
		return fmt.Errorf("the plural %q: want lower-case letters and digits, such as shops; set it with --plural", n.plural)
	}
	if bad := validation.IsDNS1123Subdomain(n.group); bad != nil || !strings.Contains(n.group, ".") {
		return fmt.Errorf("--group %q: want a domain, such as shop.example.org", n.group)
	}
	if of := "." + n.group; strings.HasSuffix(of, ".k8s.io") || strings.HasSuffix(of, ".kubernetes.io") {
		return fmt.Errorf("--group %q: k8s.io and kubernetes.io are for Kubernetes' own kinds; choose a domain of yours, such as shop.example.org", n.group)
	}
	if n.kind == "List" {
		return errors.New("the kind List: Kubernetes has a kind List of its own; choose another name")
	}
	if strings.HasSuffix(n.kind, "List") {
		return fmt.Errorf("the kind %s: the name is for the list of the kind %s; choose another name", n.kind, strings.TrimSuffix(n.kind, "List"))
	}
	if n.kind == "Main" {
		return errors.New("the kind Main: its test would be TestMain, which go test calls for another purpose; choose another name")
	}
	return nil
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
