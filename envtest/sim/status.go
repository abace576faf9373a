// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// subresourceLocked answers a request for a subresource of live, which is nil if there is none.
func (s *Server) subresourceLocked(r *Request, t *table, live *unstructured.Unstructured) (*http.Response, error) {
	finalizes := r.Subresource == "finalize" && t.IsNamespaces()
	served := r.Subresource == "status" && t.Status || r.Subresource == "scale" && t.Scale != nil || finalizes
	acts := (r.Subresource == "eviction" || r.Subresource == "binding") && t.has(r.Subresource)
	switch {
	case finalizes && r.Verb != "update", acts && r.Verb != "create":
		return nil, notAllowed()
	case acts && r.Subresource == "eviction":
		return s.evictLocked(r, t, live)
	case acts:
		return s.bindLocked(r, t, live)
	case !served && t.has(r.Subresource):
		return nil, unsupported(r)
	case !served && t.BuiltIn:
		return nil, noResource()
	case !served:
		return nil, t.NotFound(r.Name)
	case r.Verb == "create" || r.Verb == "delete":
		if t.BuiltIn {
			return nil, notAllowed()
		}
		return nil, apierrors.NewMethodNotSupported(t.GVR().GroupResource(), r.Verb)
	case r.Subresource == "scale":
		return s.scaleLocked(r, t, live)
	case r.Verb == "get" && live == nil:
		return nil, t.NotFound(r.Name)
	case r.Verb == "get":
		return r.answer(http.StatusOK, live)
	case r.Verb == "update":
		return s.updateLocked(r, t, live)
	}
	return s.patchLocked(r, t, live)
}

// has reports whether a real server serves the subresource.
func (t *table) has(subresource string) bool {
	return slices.Contains(otherSubresources[t.GVR().GroupResource().String()], subresource)
}

// otherSubresources lists the subresources of built-in kinds other than status and scale.
var otherSubresources = map[string][]string{
	"pods": {
		"attach", "binding", "ephemeralcontainers", "eviction", "exec", "log", "portforward", "proxy", "resize",
	},
	"services":        {"proxy"},
	"nodes":           {"proxy"},
	"namespaces":      {"finalize"},
	"serviceaccounts": {"token"},
	"certificatesigningrequests.certificates.k8s.io": {"approval"},
}
