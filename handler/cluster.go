// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package handler

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/rbac"
)

// ClusterKey names an object of one of several clusters, which share a queue:
//
//	c := controller.New("website", r, controller.Options{})
//	c.Watch(source.Kind(websites, handler.InCluster("east", handler.Self())))
type ClusterKey struct {
	// Cluster is the name given to InCluster, perhaps "" for the manager's cluster.
	Cluster string
	types.NamespacedName
}

// String returns cluster:namespace/name, or namespace/name if Cluster is empty.
func (k ClusterKey) String() string {
	if k.Cluster == "" {
		return k.NamespacedName.String()
	}
	return k.Cluster + ":" + k.NamespacedName.String()
}

// Tenant returns cluster:namespace, for controller.Options.NamespaceTenants.
func (k ClusterKey) Tenant() string {
	if k.Cluster == "" {
		return k.Namespace
	}
	return k.Cluster + ":" + k.Namespace
}

// InCluster returns the keys of h with the name of their cluster. The result is an Identity if h is
// one.
func InCluster(cluster string, h Handler[types.NamespacedName]) Handler[ClusterKey] {
	in := inCluster{cluster, h}
	if identity, ok := h.(Identity[types.NamespacedName]); ok && !argument.IsNil(h) {
		return identityInCluster{in, identity}
	}
	return in
}

type inCluster struct {
	cluster string
	handler Handler[types.NamespacedName]
}

func (in inCluster) Keys(ctx context.Context, e Event) ([]ClusterKey, error) {
	names, err := in.handler.Keys(ctx, e)
	if len(names) == 0 {
		return nil, err
	}
	keys := make([]ClusterKey, len(names))
	for i, name := range names {
		keys[i] = ClusterKey{in.cluster, name}
	}
	return keys, err
}

func (in inCluster) MetadataOnly() bool { return metadataOnly(in.handler) }

// Needs implements rbac.Needer.
func (in inCluster) Needs() []rbac.Need {
	if n, ok := in.handler.(rbac.Needer); ok && !argument.IsNil(in.handler) {
		return n.Needs()
	}
	return nil
}

func (in inCluster) CheckType(example Object) error {
	if argument.IsNil(in.handler) {
		return fmt.Errorf("handler.InCluster(%q): the handler is nil; give one, such as handler.Self()", in.cluster)
	}
	if c, ok := in.handler.(typeChecker); ok {
		return c.CheckType(example)
	}
	return nil
}

type identityInCluster struct {
	inCluster
	identity Identity[types.NamespacedName]
}

func (in identityInCluster) Identity(o Object) (ClusterKey, bool) {
	name, ok := in.identity.Identity(o)
	return ClusterKey{in.cluster, name}, ok
}
