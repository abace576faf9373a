// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// subresource answers a request for a subresource of live, which is nil if there is none.
func (s *API) subresource(r *request.Request, t *store.Table, live *unstructured.Unstructured) (*http.Response, error) {
	finalizes := r.Subresource == "finalize" && t.IsNamespaces()
	served := r.Subresource == "status" && t.Status || r.Subresource == "scale" && t.Scale != nil || finalizes
	acts := (r.Subresource == "eviction" || r.Subresource == "binding") && hasSubresource(t, r.Subresource)
	switch {
	case finalizes && r.Verb != "update", acts && r.Verb != "create":
		return nil, request.NotAllowed()
	case acts && r.Subresource == "eviction":
		return s.evict(r, t, live)
	case acts:
		return s.bind(r, t, live)
	case !served && hasSubresource(t, r.Subresource):
		return nil, request.Unsupported(r)
	case !served && t.BuiltIn:
		return nil, request.NoResource()
	case !served:
		return nil, t.NotFound(r.Name)
	case r.Verb == "create" || r.Verb == "delete":
		if t.BuiltIn {
			return nil, request.NotAllowed()
		}
		return nil, apierrors.NewMethodNotSupported(t.GVR().GroupResource(), r.Verb)
	case r.Subresource == "scale":
		return s.scale(r, t, live)
	case r.Verb == "get" && live == nil:
		return nil, t.NotFound(r.Name)
	case r.Verb == "get":
		return r.Answer(http.StatusOK, live)
	case r.Verb == "update":
		return s.update(r, t, live)
	}
	return s.patch(r, t, live)
}

// hasSubresource reports whether a real server serves the subresource.
func hasSubresource(t *store.Table, subresource string) bool {
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
