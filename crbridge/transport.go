// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"net/http"
	"path"
	"strings"

	"github.com/setpoint-dev/setpoint/term"
)

// eventsWithoutTerm returns a client that sends Kubernetes events without a term. The recorders of
// controller-runtime have no context of a Reconcile, and an event may be sent after its term.
func eventsWithoutTerm(c *http.Client) *http.Client {
	own := *c
	own.Transport = eventTransport{c.Transport}
	return &own
}

type eventTransport struct{ next http.RoundTripper }

func (t eventTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && term.FromContext(r.Context()) == nil && isEvent(r.URL.Path) {
		r = r.WithContext(term.Without(r.Context()))
	}
	return t.next.RoundTrip(r)
}

// isEvent reports whether a path is of events, or of one.
func isEvent(p string) bool {
	if !strings.HasPrefix(p, "/api/v1/") && !strings.Contains(p, "/apis/events.k8s.io/") {
		return false
	}
	return path.Base(p) == "events" || path.Base(path.Dir(p)) == "events"
}
