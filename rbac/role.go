// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Role is a Role or, without a namespace, a ClusterRole.
type Role struct {
	Cluster, Namespace string // as in Rule
	Rules              []rbacv1.PolicyRule
}

// Kind is ClusterRole or Role.
func (r *Role) Kind() string {
	if r.Namespace == "" {
		return "ClusterRole"
	}
	return "Role"
}

// Roles returns the fewest roles that grant the rules: a ClusterRole and a Role for each namespace,
// in each cluster. Rules that can be merged are merged. All is sorted.
func Roles(rules []Rule) []Role {
	type place struct{ cluster, namespace string }
	in := map[place][]Rule{}
	for _, r := range Merge(rules) {
		p := place{r.Cluster, r.Namespace}
		in[p] = append(in[p], r)
	}
	places := slices.SortedFunc(maps.Keys(in), func(a, b place) int {
		return cmp.Or(strings.Compare(a.cluster, b.cluster), strings.Compare(a.namespace, b.namespace))
	})
	roles := make([]Role, 0, len(places))
	for _, p := range places {
		roles = append(roles, Role{p.cluster, p.namespace, policies(in[p])})
	}
	return roles
}

// Merge returns the same rights in fewer rules, sorted, with one rule for a resource and its names.
func Merge(rules []Rule) []Rule {
	merged := map[string]*Rule{}
	for _, r := range rules {
		r.Names = slices.Sorted(slices.Values(r.Names))
		if m := merged[r.key()]; m == nil {
			r.Verbs = slices.Clone(r.Verbs)
			merged[r.key()] = &r
		} else {
			m.Verbs = append(m.Verbs, r.Verbs...)
			if !strings.Contains(m.Why, r.Why) {
				m.Why = strings.TrimPrefix(m.Why+"; "+r.Why, "; ")
			}
		}
	}
	all := slices.SortedFunc(maps.Values(merged), compare)
	left := make([]Rule, 0, len(all))
	for _, r := range all {
		r.Verbs = slices.Compact(slices.Sorted(slices.Values(r.Verbs)))
		for _, wide := range r.wider() {
			if w := merged[wide]; w != nil && w != r {
				r.Verbs = slices.DeleteFunc(r.Verbs, func(verb string) bool { return slices.Contains(w.Verbs, verb) })
			}
		}
		if len(r.Verbs) > 0 {
			left = append(left, *r)
		}
	}
	return left
}

// key identifies the rule that r is merged with.
func (r *Rule) key() string {
	return strings.Join(append([]string{r.Cluster, r.Namespace, r.Group, r.Resource}, r.Names...), "\x00")
}

// wider returns the keys of rules that grant the verbs of r, too: without names, or in all
// namespaces.
func (r *Rule) wider() []string {
	unnamed, everywhere := *r, *r
	unnamed.Names, everywhere.Namespace = nil, ""
	both := unnamed
	both.Namespace = ""
	return []string{unnamed.key(), everywhere.key(), both.key()}
}

func compare(a, b *Rule) int {
	return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Group, b.Group),
		strings.Compare(a.Resource, b.Resource), slices.Compare(a.Names, b.Names))
}

// policies returns one rule for resources of a group with the same names and verbs.
func policies(rules []Rule) (all []rbacv1.PolicyRule) {
	index := map[string]int{}
	for _, r := range rules {
		key := strings.Join(slices.Concat([]string{r.Group}, r.Verbs, []string{""}, r.Names), "\x00")
		i, found := index[key]
		if !found {
			i = len(all)
			index[key] = i
			all = append(all, rbacv1.PolicyRule{APIGroups: []string{r.Group}, ResourceNames: r.Names, Verbs: r.Verbs})
		}
		all[i].Resources = append(all[i].Resources, r.Resource)
	}
	return all
}
