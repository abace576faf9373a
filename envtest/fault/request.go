// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/internal/apipath"
)

// Request is a request as the API server understands it, and its outcome. Callers get copies; Query
// is shared and read-only.
type Request struct {
	// Verb is get, list, watch, create, update, patch, delete or deletecollection. For a path
	// without a resource, such as /version, it is the HTTP method in lower case.
	Verb string

	// Group, Version and Resource come from the path, for example apps, v1 and deployments.
	// Resource may be empty.
	Group, Version, Resource string

	// Subresource is, for example, status.
	Subresource string

	// Namespace is empty for cluster-scoped resources and lists of all namespaces. For namespaces
	// it is their name, as in the API server.
	Namespace string

	// Name is empty for creates and lists, unless the list's field selector selects one name.
	Name string

	Path  string     // without the query
	Query url.Values // its parameters

	// Accept is the header: it shows whether only metadata is wanted.
	Accept string

	// Proto is HTTP/1.1 or HTTP/2.0.
	UserAgent, Proto string

	// Ended is zero while the request runs.
	Started, Ended time.Time

	// Status is the HTTP status that the client received, or 0.
	Status int

	// Effects lists what the proxy did to the request, in order, each once: "hold", "delay 1s",
	// "refuse 429", "cut", "hang", "change", "lose", "lag 500ms", "freeze"; and "unreachable: …" if
	// the API server was unreachable.
	Effects []string

	token string // see Match.Config
}

func parse(h *http.Request) Request {
	t := apipath.Parse(h.Method, h.URL.Path, h.URL.RawQuery)
	return Request{
		Verb: t.Verb, Group: t.Group, Version: t.Version, Resource: t.Resource, Subresource: t.Subresource,
		Namespace: t.Namespace, Name: t.Name, Path: h.URL.Path, Query: h.URL.Query(),
		UserAgent: h.UserAgent(), Accept: h.Header.Get("Accept"), Proto: h.Proto, Started: time.Now(), token: bearerToken(h.Header),
	}
}

func (r *Request) copyLocked() Request {
	c := *r
	c.Effects = slices.Clone(r.Effects)
	return c
}

func (r *Request) noteLocked(effect string) {
	if !slices.Contains(r.Effects, effect) {
		r.Effects = append(r.Effects, effect)
	}
}

func bearerToken(header http.Header) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
