// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// noBackend is the Backend of a cache that was given none: it knows client-go's scheme, and nothing else.
type noBackend struct{}

var errNoBackend = errors.New("the cache has no Backend to list and watch with; give cache.New a client, or use cache.Adopt with an informer of cache/factory")

func (c *Cache) hasBackend() bool { return c.backend != Backend(noBackend{}) }

func (noBackend) Scheme() *runtime.Scheme { return scheme.Scheme }

func (noBackend) MappingWithin(context.Context, schema.GroupVersionKind, time.Duration) (*meta.RESTMapping, error) {
	return nil, errNoBackend
}

func (noBackend) Known(schema.GroupVersionKind) *meta.RESTMapping { return nil }

func (noBackend) Forget(schema.GroupVersionKind) {}

func (noBackend) RESTClient(schema.GroupVersionKind) (rest.Interface, error) {
	return nil, errNoBackend
}

func (noBackend) Dynamic() (dynamic.Interface, error) { return nil, errNoBackend }

func (noBackend) Metadata() (metadata.Interface, error) { return nil, errNoBackend }
