// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"iter"
	"path"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// role is a Role or a ClusterRole.
type role struct {
	Rules []struct {
		APIGroups, Resources, Verbs []string
	}
}

// right is what a file of the program needs.
type right struct {
	file, does      string // for a message
	kind            string
	group, resource string
	verbs           []string
}

var (
	// handle matches the kinds that are read through the cache.
	handle = regexp.MustCompile(`cache\.For(?:Scope)?\[\*(\w+)\.(\w+)\]`)
	// owner matches the kinds that own children.
	owner      = regexp.MustCompile(`children\.Set\[\*(\w+)\.(\w+)\]`)
	importSpec = regexp.MustCompile(`(?m)^(?:import )?\t?(?:(\w+) )?"([^"]+)"$`)
)

// missingRights names the rights that the program needs by its text, and that its roles lack: to
// read kinds through the cache, to write a status, and to own children. The tests find all others.
func (p *project) missingRights(in files) (found []string) {
	const file = "config/rbac/role.yaml"
	var roles []role
	for text := range strings.SplitSeq(in[file], "\n---\n") {
		var r role
		if err := yaml.Unmarshal([]byte(text), &r); err != nil {
			return []string{fmt.Sprintf("%s: %v", file, err)}
		}
		roles = append(roles, r)
	}
	for name := range in.program() {
		for _, need := range p.rights(in, name) {
			if slices.ContainsFunc(roles, func(r role) bool { return r.grants(&need) }) {
				continue
			}
			text := fmt.Sprintf("%s %s the kind %s, and %s does not grant it; add '// +kubebuilder:rbac:groups=%q,resources=%s,verbs=%s' and run 'make generate'",
				need.file, need.does, need.kind, file, need.group, need.resource, strings.Join(need.verbs, ";"))
			if !slices.Contains(found, text) {
				found = append(found, text)
			}
		}
	}
	return found
}

// program returns the names of the Go files at the top that are no tests.
func (f files) program() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, name := range f.names() {
			if path.Dir(name) == "." && path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go") && !yield(name) {
				return
			}
		}
	}
}

// rights returns the rights that a Go file needs by its text.
func (p *project) rights(in files, name string) (all []right) {
	need := func(pkg, kind, does, subresource string, verbs ...string) {
		group, ok := p.groupOf(imported(in[name], pkg))
		if !ok {
			return
		}
		plural := pluralOf(strings.ToLower(kind))
		if n, err := p.kind(in, kind); err == nil && group == n.group {
			plural = n.plural
		}
		all = append(all, right{file: name, does: does, kind: kind, group: group, resource: plural + subresource, verbs: verbs})
	}
	for _, h := range handle.FindAllStringSubmatch(in[name], -1) {
		need(h[1], h[2], "reads", "", "list", "watch")
	}
	for _, o := range owner.FindAllStringSubmatch(in[name], -1) {
		need(o[1], o[2], "sets owner references to", "/finalizers", "update")
	}
	for _, s := range statusWrites(in[name]) {
		need(s.pkg, s.kind, "writes the status of", "/status", s.verb)
	}
	return all
}

// imported returns the path of a package in a Go file by its name there.
func imported(text, name string) string {
	for _, spec := range importSpec.FindAllStringSubmatch(text, -1) {
		if spec[1] == name || spec[1] == "" && path.Base(spec[2]) == name {
			return spec[2]
		}
	}
	return ""
}

// groupOf returns the API group of a Go package, if it is known.
func (p *project) groupOf(pkg string) (string, bool) {
	if strings.HasPrefix(pkg, p.module+"/api/") {
		return p.group, true
	}
	of, ok := strings.CutPrefix(path.Dir(pkg), "k8s.io/api/")
	switch of {
	case "core":
		return "", ok
	case "apps", "autoscaling", "batch", "policy":
		return of, ok
	case "rbac":
		return "rbac.authorization.k8s.io", ok
	}
	return of + ".k8s.io", ok
}

// grants reports whether the role grants all verbs of a right.
func (r *role) grants(need *right) bool {
	var verbs []string
	_, subresource, _ := strings.Cut(need.resource, "/")
	for _, rule := range r.Rules {
		if has(rule.APIGroups, need.group) && (has(rule.Resources, need.resource) || slices.Contains(rule.Resources, "*/"+subresource)) {
			verbs = append(verbs, rule.Verbs...)
		}
	}
	return !slices.ContainsFunc(need.verbs, func(verb string) bool { return !has(verbs, verb) })
}

func has(all []string, one string) bool {
	return slices.Contains(all, one) || slices.Contains(all, "*")
}
