// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"slices"
	"strings"

	"k8s.io/client-go/rest"
)

// Match selects requests. Every set field must match; the zero value matches every request.
type Match struct {
	// Verbs are values of Request.Verb. Default: any.
	Verbs []string

	// Groups are API groups; "" is the core group. Default: any.
	Groups []string

	// Resources are plural names as in RBAC. Default: any, and paths that name no resource.
	//
	// 	"pods"          pods, without subresources
	// 	"pods/status"   one subresource
	// 	"pods/*"        all subresources of pods
	// 	"*"             every resource, without subresources
	Resources []string

	// Namespace and Name are as in the path. Default: any.
	Namespace, Name string

	// UserAgent is a substring of the User-Agent header. Default: any.
	UserAgent string

	// Config is a result of Proxy.Config, Proxy.ConfigOf or sim.Server.Config, or a copy. Only its
	// clients' requests match. Default: any client.
	Config *rest.Config

	// Func decides about requests that match all other fields. It is called concurrently and must
	// not block. Default: true.
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

func (r *Request) is(pattern string) bool {
	resource, subresource, _ := strings.Cut(pattern, "/")
	return r.Resource != "" &&
		(resource == "*" || resource == r.Resource) &&
		(subresource == r.Subresource || subresource == "*" && r.Subresource != "")
}
