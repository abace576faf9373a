// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	rbacv1 "k8s.io/api/rbac/v1"
)

// YAML returns the Roles of Rules, for kubectl apply. They have the name of the program. A comment
// above a rule names what is missing.
func (r *Report) YAML() string {
	var b strings.Builder
	missing := r.missing()
	for i, role := range Roles(r.Rules()) {
		if i > 0 {
			b.WriteString("---\n")
		}
		if role.Cluster != "" {
			fmt.Fprintf(&b, "# cluster: %s\n", oneLine(role.Cluster))
		}
		fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\nmetadata:\n  name: %s\n", rbacv1.SchemeGroupVersion, role.Kind(), scalar(roleName(r.Name)))
		if role.Namespace != "" {
			fmt.Fprintf(&b, "  namespace: %s\n", scalar(role.Namespace))
		}
		b.WriteString("rules:\n")
		for _, rule := range role.Rules {
			for _, n := range role.granting(&rule, missing) {
				fmt.Fprintf(&b, "# missing: %s\n", oneLine(r.Missing[n].String()))
			}
			fmt.Fprintf(&b, "- %s\n", flow(&rule))
		}
	}
	return b.String()
}

// missing returns the indexes of the missing rights by the keys of all rules that grant a part.
func (r *Report) missing() map[string][]int {
	index := map[string][]int{}
	for n, m := range r.Missing {
		for _, right := range m.each() {
			for _, key := range append(right.wider(), right.key()) {
				index[key+" "+right.Verbs[0]] = append(index[key+" "+right.Verbs[0]], n)
			}
		}
	}
	return index
}

// granting returns the indexes of the missing rights that a rule of the role grants in part.
func (r *Role) granting(rule *rbacv1.PolicyRule, missing map[string][]int) (all []int) {
	for _, resource := range rule.Resources {
		of := Rule{Cluster: r.Cluster, Namespace: r.Namespace, Group: rule.APIGroups[0], Resource: resource, Names: rule.ResourceNames, Verbs: rule.Verbs}
		for _, right := range of.each() {
			all = append(all, missing[right.key()+" "+right.Verbs[0]]...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Inline returns Roles as YAML in one line, for a log: a role, or a List of several.
func Inline(name string, roles []Role) string {
	texts := make([]string, 0, len(roles))
	for _, role := range roles {
		meta := "name: " + scalar(roleName(name))
		if role.Namespace != "" {
			meta += ", namespace: " + scalar(role.Namespace)
		}
		rules := make([]string, 0, len(role.Rules))
		for _, rule := range role.Rules {
			rules = append(rules, flow(&rule))
		}
		texts = append(texts, fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {%s}, rules: [%s]}",
			rbacv1.SchemeGroupVersion, role.Kind(), meta, strings.Join(rules, ", ")))
	}
	if len(texts) == 1 {
		return texts[0]
	}
	return "{apiVersion: v1, kind: List, items: [" + strings.Join(texts, ", ") + "]}"
}

// flow returns a rule as a YAML flow mapping.
func flow(r *rbacv1.PolicyRule) string {
	list := func(values []string) string {
		texts := make([]string, 0, len(values))
		for _, v := range values {
			texts = append(texts, scalar(v))
		}
		return "[" + strings.Join(texts, ", ") + "]"
	}
	text := "{apiGroups: " + list(r.APIGroups) + ", resources: " + list(r.Resources)
	if len(r.ResourceNames) > 0 {
		text += ", resourceNames: " + list(r.ResourceNames)
	}
	return text + ", verbs: " + list(r.Verbs) + "}"
}

var (
	plain   = regexp.MustCompile(`^[a-z][a-z0-9./-]*$`)
	word    = regexp.MustCompile(`^(true|false|null|yes|no|on|off|y|n)$`) // not text in YAML
	unusual = regexp.MustCompile(`[^a-zA-Z0-9.:_-]+`)
)

// scalar quotes what YAML could take for something else than text. A log quotes double quotes.
func scalar(text string) string {
	switch {
	case plain.MatchString(text) && !word.MatchString(text):
		return text
	case oneLine(text) != text:
		return strconv.QuoteToASCII(text) // YAML has the same escapes
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}

// oneLine replaces what is not printable: a comment ends with its line, and YAML is printable.
func oneLine(text string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, text)
}

// roleName makes a name of a Role from a name of a program.
func roleName(name string) string {
	return cmp.Or(strings.Trim(unusual.ReplaceAllString(name, "-"), "-."), "operator")
}
