// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
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

// Mapping says as which resource, and in which scope, the API server serves a kind. The answer is kept. A kind that is
// not served gives a *[NotServedError] and is asked for again at the next call.
func (c *Client) Mapping(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	return c.MappingWithin(ctx, gvk, 0)
}

// MappingWithin is Mapping, but for a kind that is not served it is content with an answer that is no older than age, whoever
// got it: callers that wait for kinds of one group-version ask once for all of them.
func (c *Client) MappingWithin(ctx context.Context, gvk schema.GroupVersionKind, age time.Duration) (*meta.RESTMapping, error) {
	if m := c.Known(gvk); m != nil {
		return m, nil
	}
	g := c.groupVersion(gvk.GroupVersion())
	select { // one after another: who comes second has an answer
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if m := c.Known(gvk); m != nil {
		return m, nil
	}
	if c.doubtful(g) || time.Since(g.asked) >= age {
		g.asked = time.Time{}
		if err := c.ask(ctx, gvk.GroupVersion()); err != nil {
			return nil, err
		}
		g.asked = time.Now()
	}
	if m := c.Known(gvk); m != nil {
		return m, nil
	}
	return nil, &NotServedError{Kind: gvk, Host: c.config.Host, asked: g.asked}
}

// Known is Mapping without a request: nil for a kind that was not found yet, or was forgotten.
func (c *Client) Known(gvk schema.GroupVersionKind) *meta.RESTMapping {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mappings[gvk]
}

// Forget drops what Mapping has kept of a kind: the next call asks the API server.
func (c *Client) Forget(gvk schema.GroupVersionKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.versions[gvk.GroupVersion()]; g != nil && c.mappings[gvk] != nil {
		delete(c.mappings, gvk)
		g.doubtful = true
	}
}

// groupVersion is what the API server said of a group-version.
type groupVersion struct {
	turn  chan struct{} // holds one: whoever asks
	asked time.Time     // of whoever has the turn: when the last answer came

	doubtful bool // guarded by the client's mutex: the last answer says nothing about what is served now
}

func (c *Client) doubtful(g *groupVersion) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	doubtful := g.doubtful
	g.doubtful = false
	return doubtful || g.asked.IsZero()
}

func (c *Client) groupVersion(gv schema.GroupVersion) *groupVersion {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.versions[gv]
	if g == nil {
		g = &groupVersion{turn: make(chan struct{}, 1)}
		c.versions[gv] = g
	}
	return g
}

// ask keeps the mapping of every kind of a group-version.
func (c *Client) ask(ctx context.Context, gv schema.GroupVersion) error {
	var list metav1.APIResourceList
	// Without MaxRetries client-go makes the request up to 10 times more, unseen, if the API server says when (Retry-After).
	err := c.discovery.RESTClient().Get().MaxRetries(0).AbsPath(apiPath(gv.Group), gv.Group, gv.Version).Do(ctx).Into(&list)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("asking the API server at %s for %s: %w", c.config.Host, gv, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.mappings, func(gvk schema.GroupVersionKind, _ *meta.RESTMapping) bool { return gvk.GroupVersion() == gv })
	c.subresources[gv] = subresourcesOf(list)
	for _, r := range list.APIResources {
		gvk := gv.WithKind(r.Kind)
		if strings.Contains(r.Name, "/") || c.mappings[gvk] != nil { // a slash is a subresource
			continue
		}
		m := &meta.RESTMapping{Resource: gv.WithResource(r.Name), GroupVersionKind: gvk, Scope: meta.RESTScopeRoot}
		if r.Namespaced {
			m.Scope = meta.RESTScopeNamespace
		}
		c.mappings[gvk] = m
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
func (c *Client) subresource(gvk schema.GroupVersionKind, name string) *metav1.APIResource {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.mappings[gvk]
	if m == nil {
		return nil
	}
	r, ok := c.subresources[gvk.GroupVersion()][m.Resource.Resource+"/"+name]
	if !ok {
		return nil
	}
	return &r
}

// Dynamic returns client-go's client for unstructured objects. It makes no request.
func (c *Client) Dynamic() (dynamic.Interface, error) {
	d, err := dynamic.NewForConfigAndClient(c.config, c.http)
	if err != nil {
		return nil, fmt.Errorf("a dynamic client: %w", err)
	}
	return d, nil
}

// Metadata returns client-go's client for the metadata of objects. It makes no request.
func (c *Client) Metadata() (metadata.Interface, error) {
	m, err := metadata.NewForConfigAndClient(c.config, c.http)
	if err != nil {
		return nil, fmt.Errorf("a metadata client: %w", err)
	}
	return m, nil
}

// RESTClient returns client-go's REST client for a kind: protobuf where its Go type can do it, else JSON. It makes no
// request.
func (c *Client) RESTClient(gvk schema.GroupVersionKind) (rest.Interface, error) {
	return kept(c, c.rests, gvk, "REST", func() (rest.Interface, error) {
		return rest.RESTClientForConfigAndClient(c.configFor(gvk), c.http)
	})
}

// dynamicFor is Dynamic for one kind.
func (c *Client) dynamicFor(gvk schema.GroupVersionKind) (dynamic.Interface, error) {
	return kept(c, c.dynamics, gvk, "dynamic", func() (dynamic.Interface, error) {
		return dynamic.NewForConfigAndClient(c.warningOf(gvk), c.http)
	})
}

// metadataFor is Metadata for one kind.
func (c *Client) metadataFor(gvk schema.GroupVersionKind) (metadata.Interface, error) {
	return kept(c, c.metadatas, gvk, "metadata", func() (metadata.Interface, error) {
		return metadata.NewForConfigAndClient(c.warningOf(gvk), c.http)
	})
}

// kept makes client-go's client for a kind once. The client's mutex guards the map.
func kept[V any](c *Client, all map[schema.GroupVersionKind]V, gvk schema.GroupVersionKind, what string, build func() (V, error)) (V, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := all[gvk]; ok {
		return v, nil
	}
	v, err := build()
	if err != nil {
		return v, fmt.Errorf("a %s client for %s: %w", what, gvk, err)
	}
	all[gvk] = v
	return v, nil
}

// apiPath is where the API server serves a group.
func apiPath(group string) string {
	if group == "" {
		return "/api"
	}
	return "/apis"
}

func (c *Client) configFor(gvk schema.GroupVersionKind) *rest.Config {
	cfg := c.warningOf(gvk)
	gv := gvk.GroupVersion()
	cfg.GroupVersion = &gv
	cfg.APIPath = apiPath(gvk.Group)
	cfg.NegotiatedSerializer = c.codecs.WithoutConversion()
	if c.speaksProtobuf(gvk) {
		cfg.ContentType = runtime.ContentTypeProtobuf
		cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	return cfg
}

// speaksProtobuf tells a built-in kind from a custom one: only the former's Go type can be written as protobuf.
func (c *Client) speaksProtobuf(gvk schema.GroupVersionKind) bool {
	obj, err := c.scheme.New(gvk)
	if err != nil {
		return false
	}
	_, ok := obj.(interface {
		Marshal() ([]byte, error)
		Unmarshal([]byte) error
	})
	return ok
}
