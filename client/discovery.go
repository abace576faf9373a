// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// NotServedError reports that the API server does not serve a kind or a subresource, perhaps until
// a CRD is installed or updated. For a kind, meta.IsNoMatchError is true. If the API server, or the
// server of an aggregated group, does not answer, the error is another one.
type NotServedError struct {
	Kind        schema.GroupVersionKind
	Subresource string // such as status; empty if the kind is not served
	Host        string // of the API server

	asked time.Time
}

// Error names the kind, the API server and the remedy.
func (e *NotServedError) Error() string {
	if e.Subresource != "" {
		return fmt.Sprintf("the API server at %s does not serve the %s of %s of %s; enable the %s subresource in its CRD, or check the name",
			e.Host, e.Subresource, e.Kind.Kind, e.Kind.GroupVersion(), e.Subresource)
	}
	return fmt.Sprintf("the API server at %s does not serve %s of %s; install its CRD, or check the group and version", e.Host, e.Kind.Kind, e.Kind.GroupVersion())
}

// Is makes meta.IsNoMatchError true for a kind that is not served.
func (e *NotServedError) Is(target error) bool {
	_, ok := target.(*meta.NoKindMatchError)
	return ok && e.Subresource == ""
}

// Asked returns the time of the API server's response.
func (e *NotServedError) Asked() time.Time { return e.asked }

type resources struct {
	rest rest.Interface
	host string

	mu       sync.Mutex // guards the fields below, and the group-versions
	versions map[schema.GroupVersion]*groupVersion
}

type groupVersion struct {
	turn         chan struct{}                 // holds one element while a caller asks
	asked        time.Time                     // zero: no response, or an outdated one
	mappings     map[string]*meta.RESTMapping  // by kind
	subresources map[string]metav1.APIResource // by name, such as deployments/scale
}

// Mapping returns the resource and the scope of a kind, and keeps them. If the kind is not served,
// the error is a *[NotServedError], and the next call asks again.
func (r *resources) Mapping(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	return r.MappingWithin(ctx, gvk, 0)
}

// MappingWithin is Mapping, but a *[NotServedError] may be as old as age. So callers that wait for
// several kinds of one group-version share a request.
func (r *resources) MappingWithin(ctx context.Context, gvk schema.GroupVersionKind, age time.Duration) (*meta.RESTMapping, error) {
	if m := r.Known(gvk); m != nil {
		return m, nil
	}
	g := r.groupVersion(gvk.GroupVersion())
	select { // one after another, so that the second caller finds the response
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m, asked := r.answer(g, gvk.Kind)
	if m == nil && time.Since(asked) >= age {
		if err := r.ask(ctx, g, gvk.GroupVersion()); err != nil {
			return nil, err
		}
		m, asked = r.answer(g, gvk.Kind)
	}
	if m == nil {
		return nil, &NotServedError{Kind: gvk, Host: r.host, asked: asked}
	}
	return m, nil
}

// Known is Mapping without a request. It returns nil for an unknown or forgotten kind.
func (r *resources) Known(gvk schema.GroupVersionKind) *meta.RESTMapping {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.versions[gvk.GroupVersion()]; g != nil {
		return g.mappings[gvk.Kind]
	}
	return nil
}

// Forget drops the mapping of a kind, so that the next call asks the API server.
func (r *resources) Forget(gvk schema.GroupVersionKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.versions[gvk.GroupVersion()]; g != nil && g.mappings[gvk.Kind] != nil {
		delete(g.mappings, gvk.Kind)
		g.asked = time.Time{}
	}
}

func (r *resources) groupVersion(gv schema.GroupVersion) *groupVersion {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.versions[gv]
	if g == nil {
		g = &groupVersion{turn: make(chan struct{}, 1)}
		r.versions[gv] = g
	}
	return g
}

func (r *resources) answer(g *groupVersion, kind string) (*meta.RESTMapping, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return g.mappings[kind], g.asked
}

func (r *resources) ask(ctx context.Context, g *groupVersion, gv schema.GroupVersion) error {
	var list metav1.APIResourceList
	// Without MaxRetries(0) client-go repeats the request up to 10 times after a Retry-After.
	err := r.rest.Get().MaxRetries(0).AbsPath(apiPath(gv.Group), gv.Group, gv.Version).Do(ctx).Into(&list)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("asking the API server at %s for %s: %w", r.host, gv, err)
	}
	mappings, subresources := map[string]*meta.RESTMapping{}, map[string]metav1.APIResource{}
	for _, served := range list.APIResources {
		if strings.Contains(served.Name, "/") {
			subresources[served.Name] = served
		} else if mappings[served.Kind] == nil {
			m := &meta.RESTMapping{Resource: gv.WithResource(served.Name), GroupVersionKind: gv.WithKind(served.Kind), Scope: meta.RESTScopeRoot}
			if served.Namespaced {
				m.Scope = meta.RESTScopeNamespace
			}
			mappings[served.Kind] = m
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g.mappings, g.subresources, g.asked = mappings, subresources, time.Now()
	return nil
}

func (r *resources) subresource(gvk schema.GroupVersionKind, name string) *metav1.APIResource {
	g := r.groupVersion(gvk.GroupVersion())
	r.mu.Lock()
	defer r.mu.Unlock()
	m := g.mappings[gvk.Kind]
	if m == nil {
		return nil
	}
	served, ok := g.subresources[m.Resource.Resource+"/"+name]
	if !ok {
		return nil
	}
	return &served
}

func apiPath(group string) string {
	if group == "" {
		return "/api"
	}
	return "/apis"
}
