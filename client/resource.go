// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// NotServedError says that the API server does not serve a kind. A CRD that is installed later ends it.
type NotServedError struct {
	Kind schema.GroupVersionKind
	Host string // of the API server
}

// Error says which kind is missing where, and what to do.
func (e *NotServedError) Error() string {
	return fmt.Sprintf("the API server at %s does not serve %s of %s; install its CRD, or check the group and version", e.Host, e.Kind.Kind, e.Kind.GroupVersion())
}

// Is makes meta.IsNoMatchError true for the error.
func (e *NotServedError) Is(target error) bool {
	_, ok := target.(*meta.NoKindMatchError)
	return ok
}

// Mapping says as which resource, and in which scope, the API server serves a kind. The answer is kept. A kind that is
// not served gives a *[NotServedError] and is asked for again at the next call.
func (c *Client) Mapping(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	if m := c.knownMapping(gvk); m != nil {
		return m, nil
	}
	return c.askMapping(ctx, gvk)
}

// Forget drops what Mapping has kept of a kind: the next call asks the API server.
func (c *Client) Forget(gvk schema.GroupVersionKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mappings, gvk)
}

func (c *Client) askMapping(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	var list metav1.APIResourceList
	// Without MaxRetries client-go makes the request up to 10 times more, unseen, if the API server says when (Retry-After).
	err := c.discovery.RESTClient().Get().MaxRetries(0).AbsPath(apiPath(gvk.Group), gvk.Group, gvk.Version).Do(ctx).Into(&list)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("asking the API server at %s for %s: %w", c.config.Host, gvk.GroupVersion(), err)
	}
	for _, r := range list.APIResources {
		if r.Kind == gvk.Kind && !strings.Contains(r.Name, "/") { // a slash is a subresource
			return c.keepMapping(gvk, r), nil
		}
	}
	c.Forget(gvk)
	return nil, &NotServedError{Kind: gvk, Host: c.config.Host}
}

func (c *Client) knownMapping(gvk schema.GroupVersionKind) *meta.RESTMapping {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mappings[gvk]
}

func (c *Client) keepMapping(gvk schema.GroupVersionKind, r metav1.APIResource) *meta.RESTMapping {
	m := &meta.RESTMapping{Resource: gvk.GroupVersion().WithResource(r.Name), GroupVersionKind: gvk, Scope: meta.RESTScopeRoot}
	if r.Namespaced {
		m.Scope = meta.RESTScopeNamespace
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mappings[gvk] = m
	return m
}

// RESTClient returns client-go's REST client for a kind: protobuf where its Go type can do it, else JSON. It makes no
// request.
func (c *Client) RESTClient(gvk schema.GroupVersionKind) (rest.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.rests[gvk]; r != nil {
		return r, nil
	}
	r, err := rest.RESTClientForConfigAndClient(c.configFor(gvk), c.http)
	if err != nil {
		return nil, fmt.Errorf("a REST client for %s: %w", gvk, err)
	}
	c.rests[gvk] = r
	return r, nil
}

// apiPath is where the API server serves a group.
func apiPath(group string) string {
	if group == "" {
		return "/api"
	}
	return "/apis"
}

func (c *Client) configFor(gvk schema.GroupVersionKind) *rest.Config {
	cfg := rest.CopyConfig(c.config)
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
