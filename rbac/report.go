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
	// Error is why some rights could not be reviewed. Missing then has the rights of all refused
	// requests.
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

// Rules returns the rights that the program needs and uses, for Roles. A right that was used in
// several namespaces, or to a resource that is also used in all, is one in all namespaces. Names
// count for what is needed, and for Leases.
func (r *Report) Rules() []Rule {
	all := slices.Clone(r.Needed)
	for _, used := range r.Used {
		switch {
		case slices.ContainsFunc(r.Needed, func(n Rule) bool { return n.covers(&used) }):
			continue
		case used.Resource != "leases":
			used.Names = nil
		}
		if everywhere := func(o Rule) bool { return o.Namespace == "" && o.Cluster == used.Cluster && o.base() == used.base() }; used.Namespace != "" &&
			(slices.ContainsFunc(r.Needed, everywhere) || slices.ContainsFunc(r.Used, everywhere)) {
			used.Namespace = ""
		}
		all = append(all, used)
	}
	return Merge(append(all, r.Missing...))
}

// base is the resource without a subresource, with its group.
func (r *Rule) base() string {
	resource, _, _ := strings.Cut(r.Resource, "/")
	return resource + "." + r.Group
}
