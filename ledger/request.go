// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Request is one HTTP request that was made with a ledger in its context. Each retry that client-go makes is one more.
type Request struct {
	// Verb is get, list, watch, create, update, patch, delete or deletecollection; for a path that names no resource, such
	// as /version, the HTTP method in lower case.
	Verb string
	// Group, Version and Resource are those of the path, such as apps, v1 and deployments. Resource is empty when the path
	// names none.
	Group, Version, Resource string
	// Subresource is what follows the name, such as status.
	Subresource string
	// Namespace is empty for cluster-scoped kinds, namespaces included.
	Namespace string
	// Name is empty for lists, unless the field selector asks for one name. For a create it is what the answer says.
	Name string
	// Host is where the API server is: scheme://host, and what a proxy in front of several adds before /api and /apis. Path is
	// the whole path, as sent.
	Host, Path string
	// DryRun says that the API server was asked to store nothing.
	DryRun bool
	// Started is when the request was made. Took is how long it was until the answer began, or the error came; 0 as long as
	// neither did.
	Started time.Time
	Took    time.Duration
	// Status is the HTTP status of the answer, 0 as long as, or if, there was none. Err is then why.
	Status int
	Err    error
}

// GroupVersionResource returns the resource in one value.
func (r *Request) GroupVersionResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
}

// String says it in one line.
func (r *Request) String() string {
	var s strings.Builder
	s.WriteString(r.Verb + " ")
	if r.Resource == "" {
		s.WriteString(r.Path)
		return s.String()
	}
	s.WriteString(r.GroupVersionResource().GroupResource().String())
	if r.Subresource != "" {
		s.WriteString("/" + r.Subresource)
	}
	if r.Namespace != "" || r.Name != "" {
		s.WriteString(" " + types.NamespacedName{Namespace: r.Namespace, Name: r.Name}.String())
	}
	return s.String()
}

// Stores reports whether the request may store something: it mutates, and is neither a dry run nor a
// review of access. Only a leader may make such a request.
func (r *Request) Stores() bool {
	return r.Mutates() && !r.DryRun && r.Group != "authorization.k8s.io" && r.Group != "authentication.k8s.io"
}

// Mutates reports whether the request can change what a resource stores. Requests to some
// subresources of core resources cannot: they go through to something else, or make a token that is
// not kept.
func (r *Request) Mutates() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
	default:
		return false
	}
	if r.Group != "" {
		return r.Resource != ""
	}
	switch r.Resource + "/" + r.Subresource {
	case "pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy", "nodes/proxy", "serviceaccounts/token":
		return false
	}
	return r.Resource != ""
}
