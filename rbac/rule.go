// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Rule is a right to a resource.
type Rule struct {
	// Cluster is the name of a further cluster of the manager, or the API server of a Lease
	// elsewhere. Empty: the manager's cluster.
	Cluster string `json:"cluster,omitempty"`
	// Namespace is empty for a right in all namespaces, and to cluster-scoped resources.
	Namespace string `json:"namespace,omitempty"`
	// Group is the API group, empty for the core group.
	Group string `json:"group"`
	// Resource is the plural name, such as pods, or pods/status for a subresource.
	Resource string `json:"resource"`
	// Names limit the right to objects with these names.
	Names []string `json:"resourceNames,omitempty"`
	// Verbs are sorted.
	Verbs []string `json:"verbs"`
	// Why is what needs the right. It is empty for a right that was used.
	Why string `json:"why,omitempty"`
}

// String returns the right in a few words, such as "create, patch events.events.k8s.io in shop".
func (r *Rule) String() string {
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	s := strings.Join(r.Verbs, ", ") + " " + schema.GroupResource{Group: r.Group, Resource: resource}.String()
	if subresource != "" {
		s += "/" + subresource
	}
	if len(r.Names) > 0 {
		s += " " + strings.Join(r.Names, ", ")
	}
	if r.Namespace != "" {
		s += " in " + r.Namespace
	}
	if r.Cluster != "" {
		s += " of the cluster " + r.Cluster
	}
	if r.Why != "" {
		s += " (" + r.Why + ")"
	}
	return s
}

// each returns the rights of r, each with one verb and at most one name.
func (r *Rule) each() (all []Rule) {
	for _, verb := range r.Verbs {
		one := *r
		one.Verbs = []string{verb}
		for _, name := range r.Names {
			one.Names = []string{name}
			all = append(all, one)
		}
		if len(r.Names) == 0 {
			all = append(all, one)
		}
	}
	return all
}

// Need is a right that a part of a program needs.
type Need struct {
	// Rule has Group and Resource, unless Kind is set.
	Rule

	// Kind is the kind of the resource, whose name the manager asks the API server for. Resource
	// is then empty, or a subresource, such as finalizers. If the kind is not served, the need does
	// not count. If it is cluster-scoped, Namespace does not count.
	Kind schema.GroupVersionKind
}

// Needer is a part of a program that knows which rights its own requests need. A manager asks its
// caches, controllers, recorders, servers and electors. Needs makes no request. It is safe for
// concurrent use.
type Needer interface {
	Needs() []Need
}
