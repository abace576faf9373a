// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"slices"
	"strings"

	"k8s.io/client-go/rest"
)

// Match says which requests a rule is about. Each field that is set must agree; the zero value matches every request.
type Match struct {
	// Verbs are those of Request.Verb. Default: any.
	Verbs []string

	// Groups are API groups, "" being the core group. Default: any.
	Groups []string

	// Resources are plural names as in RBAC: "pods" is not its subresources, "pods/status" is one of them, "pods/*" is
	// all of them, "*" is every resource that is no subresource. Default: any, and paths that name no resource.
	Resources []string

	// Namespace and Name are those of the path. Default: any.
	Namespace, Name string

	// UserAgent is a part of the User-Agent header. Default: any.
	UserAgent string

	// Config is what Proxy.Config or Proxy.ConfigOf has returned, or a copy of it: only requests of its clients match.
	// Default: any client.
	Config *rest.Config

	// Func decides about requests to which all the rest applies. It is called from many goroutines and must
	// not wait. Default: true.
	Func func(*Request) bool
}

func (m Match) matches(r Request) bool {
	return (m.Verbs == nil || slices.Contains(m.Verbs, r.Verb)) &&
		(m.Groups == nil || r.Resource != "" && slices.Contains(m.Groups, r.Group)) &&
		(m.Resources == nil || slices.ContainsFunc(m.Resources, r.is)) &&
		(m.Namespace == "" || m.Namespace == r.Namespace) &&
		(m.Name == "" || m.Name == r.Name) &&
		strings.Contains(r.UserAgent, m.UserAgent) &&
		(m.Config == nil || m.Config.BearerToken != "" && m.Config.BearerToken == r.token) &&
		(m.Func == nil || m.Func(&r))
}

// is reports whether the request is about a resource as Match.Resources writes it.
func (r *Request) is(pattern string) bool {
	resource, subresource, _ := strings.Cut(pattern, "/")
	return r.Resource != "" &&
		(resource == "*" || resource == r.Resource) &&
		(subresource == r.Subresource || subresource == "*" && r.Subresource != "")
}
