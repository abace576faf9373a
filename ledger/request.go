// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Request is one HTTP request. Each retry by client-go is another one.
type Request struct {
	// Verb is get, list, watch, create, update, patch, delete or deletecollection. For paths
	// without a resource, such as /version, it is the HTTP method in lower case.
	Verb string
	// Group, Version and Resource are from the path, such as apps, v1 and deployments, or empty.
	Group, Version, Resource string
	// Subresource follows the name in the path, such as status.
	Subresource string
	// Namespace is empty for cluster-scoped kinds, including namespaces.
	Namespace string
	// Name is empty for lists, unless the field selector selects one name. A create has the name in
	// the answer or, without one, the name in the request.
	Name string
	// Host is scheme://host of the API server, with the path of a proxy before /api or /apis. Path
	// is the whole path.
	Host, Path string
	// FieldManager is the parameter of a write, or empty.
	FieldManager string
	// DryRun reports whether the API server was asked to store nothing.
	DryRun bool
	// Took is the time from Started until the answer began or an error came; 0 before.
	Started time.Time
	Took    time.Duration
	// Status is the HTTP status, or 0 without an answer. Err is the error if there is no answer.
	Status int
	Err    error
}

// String returns the request in one line.
func (r *Request) String() string {
	if r.Resource == "" {
		return r.Verb + " " + r.Path
	}
	s := r.Verb + " " + schema.GroupResource{Group: r.Group, Resource: r.Resource}.String()
	if r.Subresource != "" {
		s += "/" + r.Subresource
	}
	switch {
	case r.Name == "" && r.Namespace == "":
		return s
	case r.Name == "": // a create or a deletecollection
		return s + " in " + r.Namespace
	case r.Namespace == "":
		return s + " " + r.Name
	}
	return s + " " + types.NamespacedName{Namespace: r.Namespace, Name: r.Name}.String()
}

// Stores reports whether the request may store something, which only a leader may do: it mutates,
// and is neither a dry run nor an access review.
func (r *Request) Stores() bool {
	return r.Mutates() && !r.DryRun && r.Group != "authorization.k8s.io" && r.Group != "authentication.k8s.io"
}

// Mutates reports whether the request can change stored resources. Core subresources that connect
// to something else, or create a token, cannot.
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

// Deletes reports whether the request asks for the end of one or more objects: a delete, a
// deletecollection or an eviction.
func (r *Request) Deletes() bool {
	return r.Verb == "deletecollection" || r.Verb == "delete" && r.Subresource == "" || r.Subresource == "eviction"
}
