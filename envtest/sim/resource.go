// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "k8s.io/apimachinery/pkg/runtime/schema"

// Resource is a served kind.
type Resource struct {
	Group, Version, Kind string
	// Name is the plural in paths.
	Name       string
	Namespaced bool
}

// Some built-in kinds.
var (
	ConfigMaps  = Resource{Version: "v1", Kind: "ConfigMap", Name: "configmaps", Namespaced: true}
	Secrets     = Resource{Version: "v1", Kind: "Secret", Name: "secrets", Namespaced: true}
	Pods        = Resource{Version: "v1", Kind: "Pod", Name: "pods", Namespaced: true}
	Events      = Resource{Version: "v1", Kind: "Event", Name: "events", Namespaced: true}
	Namespaces  = Resource{Version: "v1", Kind: "Namespace", Name: "namespaces"}
	Deployments = Resource{Group: "apps", Version: "v1", Kind: "Deployment", Name: "deployments", Namespaced: true}
	Leases      = Resource{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease", Name: "leases", Namespaced: true}
)

func (r Resource) gv() schema.GroupVersion {
	return schema.GroupVersion{Group: r.Group, Version: r.Version}
}

func (r Resource) gvk() schema.GroupVersionKind { return r.gv().WithKind(r.Kind) }

func (r Resource) gvr() schema.GroupVersionResource { return r.gv().WithResource(r.Name) }
