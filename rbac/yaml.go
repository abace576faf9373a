// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// YAML returns the Roles of Rules, for kubectl apply. They have the name of the program. A comment
// above a rule names what is missing.
func (r *Report) YAML() string {
	var b strings.Builder
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
			for _, m := range r.Missing {
				if role.grants(&rule, &m) {
					fmt.Fprintf(&b, "# missing: %s\n", oneLine(m.String()))
				}
			}
			fmt.Fprintf(&b, "- %s\n", flow(&rule))
		}
	}
	return b.String()
}

// grants reports whether a rule of the role grants a part of m.
func (r *Role) grants(rule *rbacv1.PolicyRule, m *Rule) bool {
	return r.Cluster == m.Cluster && (r.Namespace == "" || r.Namespace == m.Namespace) &&
		rule.APIGroups[0] == m.Group && slices.Contains(rule.Resources, m.Resource) &&
		(len(rule.ResourceNames) == 0 || len(m.Names) > 0 && subset(m.Names, rule.ResourceNames)) &&
		slices.ContainsFunc(m.Verbs, func(v string) bool { return slices.Contains(rule.Verbs, v) })
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
		return fmt.Sprintf("%q", text)
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}

// oneLine replaces control characters, so that a comment ends with its line.
func oneLine(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == '\u0085' || c == '\u2028' || c == '\u2029' {
			return ' '
		}
		return c
	}, text)
}

// roleName makes a name of a Role from a name of a program.
func roleName(name string) string {
	return strings.Trim(unusual.ReplaceAllString(name, "-"), "-.")
}
