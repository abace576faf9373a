// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package apipath reads what a request asks of an API server from its method and URL, by the rules of
// request.RequestInfoFactory in k8s.io/apiserver v0.36.
package apipath

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
)

// Target is what a request is about.
type Target struct {
	// Verb is get, list, watch, create, update, patch, delete, deletecollection or, long deprecated, proxy; for a path that
	// names no resource, such as /version, /apis/apps/v1 or /openapi/v3, the HTTP method in lower case.
	Verb string
	// Group, Version and Resource are those of the path, such as apps, v1 and deployments. Resource is empty when the
	// path names none.
	Group, Version, Resource string
	// Subresource is what follows the name, such as status.
	Subresource string
	// Namespace is empty for cluster-scoped resources and for lists of all namespaces. For namespaces themselves it is
	// their name, as in the API server.
	Namespace string
	// Name is empty for lists, unless the field selector asks for one name, and for creates.
	Name string
}

// Parse reads a method, a URL's path (decoded, without what a proxy in front of the API server adds) and its query. It
// allocates nothing unless the query of a list has to be read.
func Parse(method, path, query string) Target {
	rest := strings.Trim(path, "/")
	var t Target
	var api string
	switch api, rest = next(rest); api {
	case "api":
		t.Version, rest = next(rest)
	case "apis":
		t.Group, rest = next(rest)
		t.Version, rest = next(rest)
	default:
		rest = ""
	}
	if rest == "" || rest[0] == '/' {
		return Target{Verb: strings.ToLower(method)}
	}
	t.Verb = verbs[method]
	special, after := next(rest)
	switch {
	case (special == "watch" || special == "proxy") && after != "": // /api/v1/watch/pods
		t.Verb, rest = special, after
	default:
		special = ""
	}
	t.resource(rest)
	switch {
	case t.Resource == "":
		return Target{Verb: strings.ToLower(method)}
	case special == "proxy":
		t.Subresource = ""
	case special != "":
	case t.Verb == "get" && t.Name == "":
		t.list(query)
	case t.Verb == "delete" && t.Name == "":
		t.Verb = "deletecollection"
	}
	return t
}

var verbs = map[string]string{
	http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create", http.MethodPut: "update",
	http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// next cuts the first part off a path.
func next(path string) (part, rest string) {
	part, rest, _ = strings.Cut(path, "/")
	return part, rest
}

// resource reads [namespaces/<namespace>/]<resource>[/<name>[/<subresource>]].
func (t *Target) resource(path string) {
	first, rest := next(path)
	if first == "namespaces" && rest != "" {
		namespace, inside := next(rest)
		t.Namespace = namespace
		if part, _ := next(inside); part != "" && part != "status" && part != "finalize" { // these two are subresources of a namespace
			first, rest = next(inside)
		}
	}
	t.Resource = first
	t.Name, rest = next(rest)
	t.Subresource, _ = next(rest)
}

func (t *Target) list(query string) {
	t.Verb = "list"
	if !strings.Contains(query, "watch") && !strings.Contains(query, "fieldSelector") && !strings.Contains(query, "%") {
		return
	}
	values, _ := url.ParseQuery(query) // of a broken query, what can be read: as url.URL.Query does
	if watch, ok := values["watch"]; ok && !isFalse(watch[0]) {
		t.Verb = "watch"
	}
	if selector, err := fields.ParseSelector(values.Get("fieldSelector")); err == nil {
		t.Name, _ = selector.RequiresExactMatch("metadata.name")
	}
}

// isFalse reads a query parameter as Kubernetes does: there, and neither of these, is true.
func isFalse(value string) bool { return value == "0" || strings.EqualFold(value, "false") }
