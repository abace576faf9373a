// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"go/format"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"
)

//go:generate go run ./pack ../../examples/template template.txtar

// packed is a copy of examples/template.
//
//go:embed template.txtar
var packed []byte

// What the template is called.
var inTemplate = names{
	name: "sample-operator", module: "github.com/setpoint-dev/setpoint/examples/template",
	kind: "Greeting", plural: "greetings", group: "demo.example.com", version: "v1alpha1",
	newVersion: "v1beta1",
}

// files are the contents of files by their slash-separated names.
type files map[string]string

func (f files) names() []string { return slices.Sorted(maps.Keys(f)) }

// template returns the files of the template with other names.
func template(n names) (files, error) {
	all := files{}
	for _, f := range txtar.Parse(packed).Files {
		all[f.Name] = string(f.Data)
	}
	if n.clusterScoped {
		if err := all.scopeToCluster(); err != nil {
			return nil, err
		}
	}
	renamed, to := files{}, n.replacer()
	for name, text := range all {
		text, err := n.rename(name, text)
		if err != nil {
			return nil, err
		}
		renamed[to.Replace(name)] = text
	}
	return renamed, nil
}

// rename replaces the names in a file of the template or of a part, and restores what depends on
// their order and length.
func (n *names) rename(name, text string) (string, error) {
	text = n.replacer().Replace(text)
	switch {
	case path.Ext(name) == ".go":
		formatted, err := format.Source([]byte(text))
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		return string(formatted), nil
	case path.Base(name) == "role.yaml":
		return sortRules(text), nil
	case path.Dir(name) == "config/crd":
		return wrapped(text)
	}
	return text, nil
}

// scopeToCluster changes the template's kind to a cluster-scoped one, whose ConfigMaps are in the
// namespace default.
func (f files) scopeToCluster() error {
	const types, controller, test = "api/v1alpha1/greeting_types.go", "greeting_controller.go", "greeting_controller_test.go"
	for _, change := range []struct{ file, before, after string }{
		{types, "resource:path=greetings", "resource:path=greetings,scope=Cluster"},
		{controller, namespaceOf, inDefault},
		{test, keyOf, clusterKey},
		{"config/samples/greeting.yaml", "  namespace: default\n", ""},
		{"config/crd/demo.example.com_greetings.yaml", "scope: Namespaced", "scope: Cluster"},
	} {
		if !strings.Contains(f[change.file], change.before) {
			return fmt.Errorf("the template's %s has no %q", change.file, change.before)
		}
		f[change.file] = strings.ReplaceAll(f[change.file], change.before, change.after)
	}
	return nil
}

// The code that differs for cluster-scoped kinds.
const (
	namespaceOf, inDefault = "(obj.Name, obj.Namespace)", `(obj.Name, "default")`
	keyOf, clusterKey      = `types.NamespacedName{Namespace: "default", Name: "greeting-sample"}`, `types.NamespacedName{Name: "greeting-sample"}`
)

// wrapped breaks the lines of a CRD as the generator does.
func wrapped(crd string) (string, error) {
	var content any
	if err := yaml.Unmarshal([]byte(crd), &content); err != nil {
		return "", err
	}
	out, err := yaml.Marshal(content)
	return "---\n" + string(out), err
}

// sortRules sorts the rules of each role by API group, as the generator does.
func sortRules(roles string) string {
	const rule = "- apiGroups:\n"
	documents := strings.Split(roles, "---\n")
	for i, document := range documents {
		head, rules, _ := strings.Cut(document, rule)
		all := strings.Split(rules, rule)
		slices.SortStableFunc(all, func(a, b string) int { return strings.Compare(firstGroup(a), firstGroup(b)) })
		if rules != "" {
			documents[i] = head + rule + strings.Join(all, rule)
		}
	}
	return strings.Join(documents, "---\n")
}

func firstGroup(rule string) string {
	line, _, _ := strings.Cut(rule, "\n")
	return strings.Trim(line, ` -"`)
}
