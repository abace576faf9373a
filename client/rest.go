// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/internal/builtin"
)

// RESTClient returns client-go's REST client for a kind, with protobuf for built-in kinds, else
// JSON. It returns an error if the client's configuration is invalid.
func (c *Client) RESTClient(gvk schema.GroupVersionKind) (rest.Interface, error) {
	return c.restFor(restKey{gvk, true})
}

// restFor returns the REST client of a key. An untyped one decodes JSON into any object, as
// client-go's dynamic client does.
func (c *Client) restFor(key restKey) (rest.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.rests[key]; ok {
		return r, nil
	}
	cfg, gv := asJSON(c.config), key.kind.GroupVersion()
	if !key.typed {
		cfg = asJSON(dynamic.ConfigFor(cfg))
	} else {
		cfg.NegotiatedSerializer = c.codecs.WithoutConversion()
		if c.speaksProtobuf(key.kind) {
			cfg.ContentType = runtime.ContentTypeProtobuf
			cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		}
	}
	cfg.GroupVersion, cfg.APIPath = &gv, apiPath(gv.Group)
	if c.warnings != nil {
		cfg.WarningHandlerWithContext = warningHandler{c.warnings, key.kind}
	}
	r, err := rest.RESTClientForConfigAndClient(cfg, c.http)
	if err != nil {
		return nil, fmt.Errorf("a REST client for %s: %w", key.kind, err)
	}
	c.rests[key] = r
	return r, nil
}

// speaksProtobuf reports whether the API server and the kind's Go type support protobuf. The API
// server refuses it for custom kinds.
func (c *Client) speaksProtobuf(gvk schema.GroupVersionKind) bool {
	if !scheme.Scheme.Recognizes(gvk) {
		return false
	}
	obj, err := c.scheme.New(gvk)
	if err != nil || !builtin.HasType(obj) {
		return false
	}
	_, ok := obj.(interface {
		Marshal() ([]byte, error)
		Unmarshal([]byte) error
	})
	return ok
}

// asJSON returns a copy of cfg for requests in JSON. A gate of client-go would ask for CBOR, which
// package cache and the ledger cannot read.
func asJSON(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	return cfg
}

// Dynamic returns client-go's dynamic client, or an error if the configuration is invalid.
func (c *Client) Dynamic() (dynamic.Interface, error) {
	cfg := asJSON(dynamic.ConfigFor(c.config))
	cfg.GroupVersion, cfg.APIPath = nil, "/" // the dynamic client sets whole paths
	r, err := rest.UnversionedRESTClientForConfigAndClient(cfg, c.http)
	if err != nil {
		return nil, err
	}
	return dynamic.New(r), nil
}

// Metadata returns client-go's metadata client, or an error if the configuration is invalid.
func (c *Client) Metadata() (metadata.Interface, error) {
	return metadata.NewForConfigAndClient(c.config, c.http)
}
