// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
)

// Discovery returns client-go's discovery client. It has no cache.
func (c *Client) Discovery() discovery.DiscoveryInterface { return c.discovery }

// RESTMapper returns a mapper between kinds and resources, for libraries that take one. It asks the
// API server at the first call, and again for a kind or resource that it has not found: a CRD may
// have been installed. It is also a meta.ResettableRESTMapper. [Client.Mapping] takes a context.
func (c *Client) RESTMapper() meta.RESTMapper { return c.mapper }

// restMapper is client-go's deferred mapper, which alone does not notice new CRDs.
type restMapper struct {
	*restmapper.DeferredDiscoveryRESTMapper
}

func newRESTMapper(d discovery.DiscoveryInterface) *restMapper {
	return &restMapper{restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))}
}

// look calls find again with a new response if it finds nothing.
func look[T any](m *restMapper, find func() (T, error)) (T, error) {
	found, err := find()
	if !meta.IsNoMatchError(err) {
		return found, err
	}
	m.Reset()
	return find()
}

func (m *restMapper) KindFor(r schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return look(m, func() (schema.GroupVersionKind, error) { return m.DeferredDiscoveryRESTMapper.KindFor(r) })
}

func (m *restMapper) KindsFor(r schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return look(m, func() ([]schema.GroupVersionKind, error) { return m.DeferredDiscoveryRESTMapper.KindsFor(r) })
}

func (m *restMapper) ResourceFor(r schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return look(m, func() (schema.GroupVersionResource, error) { return m.DeferredDiscoveryRESTMapper.ResourceFor(r) })
}

func (m *restMapper) ResourcesFor(r schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return look(m, func() ([]schema.GroupVersionResource, error) { return m.DeferredDiscoveryRESTMapper.ResourcesFor(r) })
}

func (m *restMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return look(m, func() (*meta.RESTMapping, error) { return m.DeferredDiscoveryRESTMapper.RESTMapping(gk, versions...) })
}

func (m *restMapper) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return look(m, func() ([]*meta.RESTMapping, error) {
		return m.DeferredDiscoveryRESTMapper.RESTMappings(gk, versions...)
	})
}
