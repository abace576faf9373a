// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
)

// Request is one request as the API server understands it, and what has become of it. Those that are handed out are
// copies; Query is shared and read only.
type Request struct {
	// Verb is get, list, watch, create, update, patch, delete or deletecollection; for a path that names no resource,
	// such as /version, /apis/apps/v1 or /openapi/v3, the HTTP method in lower case.
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

	// Path and Query are those of the URL, such as resourceVersion.
	Path  string
	Query url.Values

	// UserAgent is the header, Proto such as HTTP/1.1 or HTTP/2.0.
	UserAgent, Proto string

	// Started and Ended are when the request arrived and when the proxy had finished with it; Ended is zero until then.
	Started, Ended time.Time

	// Status is the HTTP status of the answer that the client was given, 0 as long as, or if, there was none.
	Status int

	// Effects are what the proxy did to the request, in order, each once: "hold", "delay 1s", "refuse 429", "cut",
	// "hang", "lose", "lag 500ms", "freeze"; and "unreachable: …" if the API server could not be reached.
	Effects []string

	token string // of the client, see Match.Config
}

// parse follows the rules of request.RequestInfoFactory in k8s.io/apiserver v0.36.
func parse(h *http.Request) Request {
	r := Request{
		Verb: strings.ToLower(h.Method), Path: h.URL.Path, Query: h.URL.Query(),
		UserAgent: h.UserAgent(), Proto: h.Proto, Started: time.Now(), token: bearerToken(h.Header),
	}
	parts := strings.Split(strings.Trim(h.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) >= 3:
		r.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) >= 4:
		r.Group, r.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return r
	}
	r.Verb = verbs[h.Method]
	deprecatedWatch := parts[0] == "watch" && len(parts) > 1 // /api/v1/watch/pods
	if deprecatedWatch {
		parts = parts[1:]
	}
	r.parseResource(parts)
	switch {
	case deprecatedWatch:
		r.Verb = "watch"
	case r.Verb == "get" && r.Name == "":
		r.parseList()
	case r.Verb == "delete" && r.Name == "":
		r.Verb = "deletecollection"
	}
	return r
}

var verbs = map[string]string{
	http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create", http.MethodPut: "update",
	http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// parseResource reads [namespaces/<namespace>/]<resource>[/<name>[/<subresource>]].
func (r *Request) parseResource(parts []string) {
	if parts[0] == "namespaces" && len(parts) > 1 {
		r.Namespace = parts[1]
		if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" { // these two are subresources of a namespace
			parts = parts[2:]
		}
	}
	r.Resource = parts[0]
	if len(parts) > 1 {
		r.Name = parts[1]
	}
	if len(parts) > 2 {
		r.Subresource = parts[2]
	}
}

func (r *Request) parseList() {
	r.Verb = "list"
	if watch, ok := r.Query["watch"]; ok && !isFalse(watch[0]) {
		r.Verb = "watch"
	}
	if selector, err := fields.ParseSelector(r.Query.Get("fieldSelector")); err == nil {
		r.Name, _ = selector.RequiresExactMatch("metadata.name")
	}
}

// isFalse reads a query parameter as Kubernetes does: there, and neither of these, is true.
func isFalse(value string) bool { return value == "0" || strings.EqualFold(value, "false") }

func bearerToken(header http.Header) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
