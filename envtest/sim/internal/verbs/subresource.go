// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/codec"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// subresource answers a request for a subresource of live, which is nil if there is none.
func (a *API) subresource(r *request.Request, t *store.Table, live *unstructured.Unstructured) (*http.Response, error) {
	finalizes := r.Subresource == "finalize" && t.IsNamespaces()
	served := r.Subresource == "status" && t.Status || r.Subresource == "scale" && t.Scale != nil || finalizes
	acts := (r.Subresource == "eviction" || r.Subresource == "binding") && hasSubresource(t, r.Subresource)
	switch {
	case finalizes && r.Verb != "update", acts && r.Verb != "create":
		return nil, request.NotAllowed()
	case acts && r.Subresource == "eviction":
		return a.evict(r, t, live)
	case acts:
		return a.bind(r, t, live)
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
		return a.scale(r, t, live)
	case r.Verb == "get" && live == nil:
		return nil, t.NotFound(r.Name)
	case r.Verb == "get":
		return r.Answer(http.StatusOK, live)
	case r.Verb == "update":
		return a.update(r, t, live)
	}
	return a.patch(r, t, live)
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

// succeed answers the creation of a subresource that is no object.
func succeed(r *request.Request) (*http.Response, error) {
	return r.Answer(http.StatusCreated, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Code: http.StatusCreated,
	})
}

// decodeSub reads the body, which is of another kind than the resource, into obj.
func decodeSub(r *request.Request, obj metav1.Object, kind schema.GroupVersionKind) error {
	if err := r.WriteOptions("CreateOptions"); err != nil {
		return err
	}
	u, err := r.DecodeAs(codec.Codec{Kind: kind, Typed: true})
	if err != nil {
		return err
	}
	if err := r.MatchNamespace(u); err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj)
}
