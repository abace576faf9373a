// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"slices"
	"strings"
)

// Report is what a process needs and uses. Its JSON is the answer of /debug/rbac. Fields may be
// added; names stay.
type Report struct {
	// Name is the name of the program.
	Name string `json:"name"`
	// Needed are the rights that its parts declare.
	Needed []Rule `json:"needed"`
	// Used are the rights of its requests since the start, refused ones included.
	Used []Rule `json:"used"`
	// Missing are the needed rights, and the rights of refused requests, that the user of the
	// process does not have now.
	Missing []Rule `json:"missing"`
	// Error names rights that could not be reviewed, and why. Missing has the ones of refused
	// requests then.
	Error string `json:"error,omitempty"`
}

// Add adds the report of another replica.
func (r *Report) Add(other *Report) {
	r.Needed, r.Used = Merge(slices.Concat(r.Needed, other.Needed)), Merge(slices.Concat(r.Used, other.Used))
	r.Missing = Merge(slices.Concat(r.Missing, other.Missing))
	if r.Name == "" {
		r.Name = other.Name
	}
	if r.Error == "" {
		r.Error = other.Error
	}
}

// Rules returns the rights that the program needs and uses, for Roles. A used right stays in the
// namespaces where it was used, unless the same resource, or the resource of its status, is needed
// or used in all. Names count for what is needed, and for Leases and tokens of ServiceAccounts,
// whose names do not change.
func (r *Report) Rules() []Rule {
	needed, everywhere := map[string]bool{}, map[string]bool{}
	for _, n := range r.Needed {
		for _, right := range n.each() {
			needed[right.key()+" "+right.Verbs[0]] = true
		}
	}
	for _, rule := range slices.Concat(r.Needed, r.Used) {
		if rule.Namespace == "" {
			everywhere[rule.key()] = true // not with names
		}
	}
	all := slices.Clone(r.Needed)
	for _, used := range r.Used {
		for _, right := range used.each() {
			if needed[right.key()+" "+right.Verbs[0]] || slices.ContainsFunc(right.wider(), func(key string) bool { return needed[key+" "+right.Verbs[0]] }) {
				continue
			}
			if right.Resource != "leases" && right.Resource != "serviceaccounts/token" {
				right.Names = nil
			}
			in := Rule{Cluster: right.Cluster, Group: right.Group, Resource: strings.TrimSuffix(right.Resource, "/status")}
			same := in
			same.Resource = right.Resource
			if everywhere[in.key()] || everywhere[same.key()] {
				right.Namespace = ""
			}
			all = append(all, right)
		}
	}
	return Merge(append(all, r.Missing...))
}
