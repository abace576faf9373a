// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

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

// warningOf returns the configuration for clients of one kind.
func (c *Client) warningOf(kind schema.GroupVersionKind) *rest.Config {
	cfg := rest.CopyConfig(c.config)
	if c.warnings != nil {
		cfg.WarningHandlerWithContext = c.warnings.of(kind)
	}
	return cfg
}
