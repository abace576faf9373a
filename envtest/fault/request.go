// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/internal/apipath"
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

func parse(h *http.Request) Request {
	t := apipath.Parse(h.Method, h.URL.Path, h.URL.RawQuery)
	return Request{
		Verb: t.Verb, Group: t.Group, Version: t.Version, Resource: t.Resource, Subresource: t.Subresource,
		Namespace: t.Namespace, Name: t.Name, Path: h.URL.Path, Query: h.URL.Query(),
		UserAgent: h.UserAgent(), Proto: h.Proto, Started: time.Now(), token: bearerToken(h.Header),
	}
}

func bearerToken(header http.Header) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
