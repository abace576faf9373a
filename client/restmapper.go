// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
)

// Discovery returns client-go's discovery client. It has no cache.
func (c *Client) Discovery() discovery.DiscoveryInterface { return c.discovery }

// RESTMapper returns a mapper between kinds and resources, for libraries that take one. It asks the
// API server for all kinds once. Each call then asks for the group-version of its answer, in one
// small request. If the answer has changed, or there is none, it asks for all kinds again. A newer
// preferred version is found only then.
//
// If a request fails, the call returns its error. If a group does not answer, such as an aggregated
// one that is down, the error for its kinds is a *discovery.ErrGroupDiscoveryFailed. For both,
// meta.IsNoMatchError is false.
//
// It is also a meta.ResettableRESTMapper. [Client.Mapping] takes a context, and keeps its answers.
func (c *Client) RESTMapper() meta.RESTMapper { return c.mapper }

type restMapper struct {
	discovery discovery.DiscoveryInterface
	host      string
	last      atomic.Pointer[discovered]
}

// discovered is the answer for all groups.
type discovered struct {
	meta.RESTMapper

	failed map[schema.GroupVersion]error // groups without an answer
}

// Reset implements meta.ResettableRESTMapper.
func (m *restMapper) Reset() { m.last.Store(nil) }

func (m *restMapper) discover() (*discovered, error) {
	groups, lists, err := m.discovery.ServerGroupsAndResources()
	var partly *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partly) {
		return nil, fmt.Errorf("asking the API server at %s for its kinds: %w", m.host, err)
	}
	d := &discovered{}
	if partly != nil {
		d.failed = partly.Groups
	}
	byVersion := map[string][]metav1.APIResource{}
	for _, list := range lists {
		byVersion[list.GroupVersion] = list.APIResources
	}
	all := make([]*restmapper.APIGroupResources, 0, len(groups))
	for _, group := range groups {
		r := &restmapper.APIGroupResources{Group: *group, VersionedResources: map[string][]metav1.APIResource{}}
		for _, version := range group.Versions {
			if resources, ok := byVersion[version.GroupVersion]; ok {
				r.VersionedResources[version.Version] = resources
			}
		}
		all = append(all, r)
	}
	d.RESTMapper = restmapper.NewDiscoveryRESTMapper(all)
	m.last.Store(d)
	return d, nil
}

// served is a part of an answer. Empty fields stand for any.
type served struct {
	version        schema.GroupVersion
	kind, resource string
	scope          meta.RESTScopeName
}

// still reports whether the API server serves all parts as before. A group that does not answer has
// not changed.
func (m *restMapper) still(parts []served) bool {
	lists := map[schema.GroupVersion]*metav1.APIResourceList{}
	for _, p := range parts {
		list, asked := lists[p.version]
		if !asked {
			var err error
			list, err = m.discovery.ServerResourcesForGroupVersion(p.version.String())
			if apierrors.IsNotFound(err) {
				list = &metav1.APIResourceList{}
			}
			lists[p.version] = list
		}
		if list != nil && !slices.ContainsFunc(list.APIResources, p.is) {
			return false
		}
	}
	return true
}

func (p served) is(r metav1.APIResource) bool {
	scope := meta.RESTScopeNameRoot
	if r.Namespaced {
		scope = meta.RESTScopeNameNamespace
	}
	return (p.kind == "" || p.kind == r.Kind) && (p.resource == "" || p.resource == r.Name) && (p.scope == "" || p.scope == scope)
}

// look finds an answer in what is known, or else in what the API server serves now. Parts returns
// the parts of an answer. Wanted reports whether a group-version may have one.
func look[T any](
	m *restMapper, find func(meta.RESTMapper) (T, error), parts func(T) []served, wanted func(schema.GroupVersion) bool,
) (T, error) {
	if d := m.last.Load(); d != nil {
		if found, err := find(d); err == nil && m.still(parts(found)) {
			return found, nil
		}
	}
	d, err := m.discover()
	if err != nil {
		return *new(T), err
	}
	found, err := find(d)
	if !meta.IsNoMatchError(err) {
		return found, err
	}
	failed := maps.Clone(d.failed) // groups that may have what was not found
	maps.DeleteFunc(failed, func(gv schema.GroupVersion, _ error) bool { return !wanted(gv) })
	if len(failed) > 0 {
		err = fmt.Errorf("asking the API server at %s for its kinds: %w", m.host, &discovery.ErrGroupDiscoveryFailed{Groups: failed})
	}
	return found, err
}

func ofKind(k schema.GroupVersionKind) served { return served{version: k.GroupVersion(), kind: k.Kind} }

func ofResource(r schema.GroupVersionResource) served {
	return served{version: r.GroupVersion(), resource: r.Resource}
}

func ofMapping(m *meta.RESTMapping) served {
	return served{
		version: m.GroupVersionKind.GroupVersion(), kind: m.GroupVersionKind.Kind, resource: m.Resource.Resource, scope: m.Scope.Name(),
	}
}

// may reports whether a group-version may have the resource. Without a group it may be any, and a
// prefix of a group will do, as in meta.DefaultRESTMapper.
func may(r schema.GroupVersionResource) func(schema.GroupVersion) bool {
	return func(gv schema.GroupVersion) bool {
		return strings.HasPrefix(gv.Group, r.Group) && (r.Version == "" || r.Version == gv.Version)
	}
}

func mayKind(gk schema.GroupKind, versions []string) func(schema.GroupVersion) bool {
	return func(gv schema.GroupVersion) bool {
		return gv.Group == gk.Group && (len(versions) == 0 || slices.Contains(versions, gv.Version))
	}
}

func one[T any](of func(T) served) func(T) []served {
	return func(t T) []served { return []served{of(t)} }
}

func all[T any](of func(T) served) func([]T) []served {
	return func(list []T) (parts []served) {
		for _, t := range list {
			parts = append(parts, of(t))
		}
		return parts
	}
}

func (m *restMapper) KindFor(r schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return look(m, func(d meta.RESTMapper) (schema.GroupVersionKind, error) { return d.KindFor(r) }, one(ofKind), may(r))
}

func (m *restMapper) KindsFor(r schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return look(m, func(d meta.RESTMapper) ([]schema.GroupVersionKind, error) { return d.KindsFor(r) }, all(ofKind), may(r))
}

func (m *restMapper) ResourceFor(r schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return look(m, func(d meta.RESTMapper) (schema.GroupVersionResource, error) { return d.ResourceFor(r) }, one(ofResource), may(r))
}

func (m *restMapper) ResourcesFor(r schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return look(m, func(d meta.RESTMapper) ([]schema.GroupVersionResource, error) { return d.ResourcesFor(r) }, all(ofResource), may(r))
}

func (m *restMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return look(m, func(d meta.RESTMapper) (*meta.RESTMapping, error) { return d.RESTMapping(gk, versions...) }, one(ofMapping), mayKind(gk, versions))
}

func (m *restMapper) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return look(m, func(d meta.RESTMapper) ([]*meta.RESTMapping, error) { return d.RESTMappings(gk, versions...) }, all(ofMapping), mayKind(gk, versions))
}

func (m *restMapper) ResourceSingularizer(resource string) (string, error) {
	d := m.last.Load()
	if d == nil {
		var err error
		if d, err = m.discover(); err != nil {
			return resource, err
		}
	}
	return d.ResourceSingularizer(resource)
}
