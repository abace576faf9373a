// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
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

var (
	// handle matches the kinds that are read through the cache.
	handle     = regexp.MustCompile(`cache\.For(?:Scope)?\[\*(\w+)\.(\w+)\]`)
	importSpec = regexp.MustCompile(`(?m)^(?:import )?\t?(?:(\w+) )?"([^"]+)"$`)
)

// missingRights names the kinds that the program reads through the cache, and that its roles do not
// let it list and watch. The tests find all other rights that are missing.
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
	for _, name := range in.names() {
		if path.Dir(name) != "." || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, h := range handle.FindAllStringSubmatch(in[name], -1) {
			group, ok := p.groupOf(imported(in[name], h[1]))
			plural := pluralOf(strings.ToLower(h[2]))
			if n, err := p.kind(in, h[2]); err == nil && group == n.group {
				plural = n.plural
			}
			if !ok || slices.ContainsFunc(roles, func(r role) bool { return r.grants(group, plural) }) {
				continue
			}
			found = append(found, fmt.Sprintf("%s reads the kind %s, and %s does not grant it; add '// +kubebuilder:rbac:groups=%q,resources=%s,verbs=list;watch' and run 'make generate'",
				name, h[2], file, group, plural))
		}
	}
	return slices.Compact(found)
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

// grants reports whether the role grants list and watch.
func (r *role) grants(group, resource string) bool {
	var verbs []string
	for _, rule := range r.Rules {
		if has(rule.APIGroups, group) && has(rule.Resources, resource) {
			verbs = append(verbs, rule.Verbs...)
		}
	}
	return has(verbs, "list") && has(verbs, "watch")
}

func has(all []string, one string) bool {
	return slices.Contains(all, one) || slices.Contains(all, "*")
}
