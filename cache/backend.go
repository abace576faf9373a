// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// Backend is what a cache lists and watches with. A *client.Client is one.
type Backend interface {
	// Scheme knows the Go types of the kinds.
	Scheme() *runtime.Scheme
	// MappingWithin returns how a kind is served. For a kind that is not served it returns an error for
	// which meta.IsNoMatchError is true. An error may be as old as age; its method Asked() time.Time, if
	// it has one, returns how old it is.
	MappingWithin(ctx context.Context, gvk schema.GroupVersionKind, age time.Duration) (*meta.RESTMapping, error)
	// Known is MappingWithin without a request. It returns nil if the mapping is not known.
	Known(gvk schema.GroupVersionKind) *meta.RESTMapping
	// Forget drops the mapping of a kind: the API server answered 404.
	Forget(gvk schema.GroupVersionKind)
	// RESTClient returns a client for requests about a kind that the scheme knows.
	RESTClient(gvk schema.GroupVersionKind) (rest.Interface, error)
	// Dynamic returns a client for unstructured objects.
	Dynamic() (dynamic.Interface, error)
	// Metadata returns a client for the metadata of objects.
	Metadata() (metadata.Interface, error)
}

// hostOf returns scheme://host of the API server, or "" if it is not known.
func hostOf(b Backend) string {
	if b == nil {
		return ""
	}
	for gvk := range b.Scheme().AllKnownTypes() {
		r, err := b.RESTClient(gvk)
		if err != nil {
			continue
		}
		if u := r.Get().URL(); u != nil {
			of := "/apis/" + gvk.Group + "/" + gvk.Version
			if gvk.Group == "" {
				of = "/api/" + gvk.Version
			}
			return u.Scheme + "://" + u.Host + strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), of)
		}
	}
	return ""
}
