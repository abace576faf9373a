// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package apipath reads verb, resource and name of an API request from its method and URL, by the
// rules of request.RequestInfoFactory in k8s.io/apiserver v0.36.
package apipath

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
)

// Target is the object or resource of a request, with the fields of ledger.Request. But a
// namespace's Namespace is its name, and a create has no Name. Verb may also be proxy, which is
// deprecated.
type Target struct {
	Verb                     string
	Group, Version, Resource string
	Subresource              string
	Namespace, Name          string
}

// Parse reads a method, a URL's decoded path without a proxy's prefix, and its query. It allocates
// only for the query of some lists.
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
		// A namespace has the subresources status and finalize.
		if part, _ := next(inside); part != "" && part != "status" && part != "finalize" {
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
	values, _ := url.ParseQuery(query) // url.URL.Query ignores errors, too
	if watch, ok := values["watch"]; ok && watch[0] != "0" && !strings.EqualFold(watch[0], "false") {
		t.Verb = "watch"
	}
	if selector, err := fields.ParseSelector(values.Get("fieldSelector")); err == nil {
		t.Name, _ = selector.RequiresExactMatch("metadata.name")
	}
}
