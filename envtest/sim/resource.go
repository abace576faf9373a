// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"

// Resource is a served kind.
type Resource struct {
	Group, Version, Kind string // the core group is ""
	// Name is the plural in paths.
	Name       string
	Namespaced bool
}

// Some built-in kinds.
var (
	ConfigMaps  = Resource{Version: "v1", Kind: "ConfigMap", Name: "configmaps", Namespaced: true}
	Secrets     = Resource{Version: "v1", Kind: "Secret", Name: "secrets", Namespaced: true}
	Pods        = Resource(kinds.Pods)
	Events      = Resource(kinds.Events)
	Namespaces  = Resource(kinds.Namespaces)
	Deployments = Resource{Group: "apps", Version: "v1", Kind: "Deployment", Name: "deployments", Namespaced: true}
	Leases      = Resource{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease", Name: "leases", Namespaced: true}
)
