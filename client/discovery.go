// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// NotServedError says that the API server does not serve a kind, or a subresource of it. A CRD that is installed or changed
// later ends it.
type NotServedError struct {
	Kind        schema.GroupVersionKind
	Subresource string // such as status; empty if it is the kind that is not served
	Host        string // of the API server

	asked time.Time
}

// Error says which kind is missing where, and what to do.
func (e *NotServedError) Error() string {
	if e.Subresource != "" {
		return fmt.Sprintf("the API server at %s does not serve the %s of %s of %s; enable the %s subresource in its CRD, or check the name",
			e.Host, e.Subresource, e.Kind.Kind, e.Kind.GroupVersion(), e.Subresource)
	}
	return fmt.Sprintf("the API server at %s does not serve %s of %s; install its CRD, or check the group and version", e.Host, e.Kind.Kind, e.Kind.GroupVersion())
}

// Is makes meta.IsNoMatchError true for the error, if it is about a kind.
func (e *NotServedError) Is(target error) bool {
	_, ok := target.(*meta.NoKindMatchError)
	return ok && e.Subresource == ""
}

// Asked returns when the API server answered that.
func (e *NotServedError) Asked() time.Time { return e.asked }

// resources is what the API server has said about what it serves.
type resources struct {
	rest rest.Interface
	host string

	mu           sync.Mutex // guards what follows
	versions     map[schema.GroupVersion]*groupVersion
	mappings     map[schema.GroupVersionKind]*meta.RESTMapping
	subresources map[schema.GroupVersion]map[string]metav1.APIResource
}

// groupVersion is what the API server said of a group-version.
type groupVersion struct {
	turn  chan struct{} // holds one: whoever asks
	asked time.Time     // of whoever has the turn: when the last answer came

	doubtful bool // guarded by the mutex of resources: the last answer says nothing about what is served now
}

// Mapping says as which resource, and in which scope, the API server serves a kind. The answer is kept. A kind that is
// not served gives a *[NotServedError] and is asked for again at the next call.
func (r *resources) Mapping(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	return r.MappingWithin(ctx, gvk, 0)
}

// MappingWithin is Mapping, but for a kind that is not served it is content with an answer that is no older than age, whoever
// got it: callers that wait for kinds of one group-version ask once for all of them.
func (r *resources) MappingWithin(ctx context.Context, gvk schema.GroupVersionKind, age time.Duration) (*meta.RESTMapping, error) {
	if m := r.Known(gvk); m != nil {
		return m, nil
	}
	g := r.groupVersion(gvk.GroupVersion())
	select { // one after another: who comes second has an answer
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if m := r.Known(gvk); m != nil {
		return m, nil
	}
	if r.doubtful(g) || time.Since(g.asked) >= age {
		g.asked = time.Time{}
		if err := r.ask(ctx, gvk.GroupVersion()); err != nil {
			return nil, err
		}
		g.asked = time.Now()
	}
	if m := r.Known(gvk); m != nil {
		return m, nil
	}
	return nil, &NotServedError{Kind: gvk, Host: r.host, asked: g.asked}
}

// Known is Mapping without a request: nil for a kind that was not found yet, or was forgotten.
func (r *resources) Known(gvk schema.GroupVersionKind) *meta.RESTMapping {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mappings[gvk]
}

// Forget drops what Mapping has kept of a kind: the next call asks the API server.
func (r *resources) Forget(gvk schema.GroupVersionKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.versions[gvk.GroupVersion()]; g != nil && r.mappings[gvk] != nil {
		delete(r.mappings, gvk)
		g.doubtful = true
	}
}

func (r *resources) doubtful(g *groupVersion) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	doubtful := g.doubtful
	g.doubtful = false
	return doubtful || g.asked.IsZero()
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

// ask keeps the mapping of every kind of a group-version.
func (r *resources) ask(ctx context.Context, gv schema.GroupVersion) error {
	var list metav1.APIResourceList
	// Without MaxRetries client-go makes the request up to 10 times more, unseen, if the API server says when (Retry-After).
	err := r.rest.Get().MaxRetries(0).AbsPath(apiPath(gv.Group), gv.Group, gv.Version).Do(ctx).Into(&list)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("asking the API server at %s for %s: %w", r.host, gv, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.mappings, func(gvk schema.GroupVersionKind, _ *meta.RESTMapping) bool { return gvk.GroupVersion() == gv })
	r.subresources[gv] = subresourcesOf(list)
	for _, served := range list.APIResources {
		gvk := gv.WithKind(served.Kind)
		if strings.Contains(served.Name, "/") || r.mappings[gvk] != nil { // a slash is a subresource
			continue
		}
		m := &meta.RESTMapping{Resource: gv.WithResource(served.Name), GroupVersionKind: gvk, Scope: meta.RESTScopeRoot}
		if served.Namespaced {
			m.Scope = meta.RESTScopeNamespace
		}
		r.mappings[gvk] = m
	}
	return nil
}

// subresourcesOf returns the resources that are subresources, by their names, such as deployments/scale.
func subresourcesOf(list metav1.APIResourceList) map[string]metav1.APIResource {
	found := map[string]metav1.APIResource{}
	for _, r := range list.APIResources {
		if strings.Contains(r.Name, "/") {
			found[r.Name] = r
		}
	}
	return found
}

// subresource returns what the API server said of a subresource of a kind, nil if it did not.
func (r *resources) subresource(gvk schema.GroupVersionKind, name string) *metav1.APIResource {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.mappings[gvk]
	if m == nil {
		return nil
	}
	served, ok := r.subresources[gvk.GroupVersion()][m.Resource.Resource+"/"+name]
	if !ok {
		return nil
	}
	return &served
}

// apiPath is where the API server serves a group.
func apiPath(group string) string {
	if group == "" {
		return "/api"
	}
	return "/apis"
}
