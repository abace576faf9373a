// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime/debug"
	"strings"
	_ "unsafe" // for go:linkname

	"k8s.io/component-base/version"
)

// kubernetesVersion returns the version of k8s.io/kubernetes that this program contains, such as
// v1.37.2.
func kubernetesVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "k8s.io/kubernetes" {
				return m.Version
			}
		}
	}
	return "unknown" // go test records no modules
}

// Kubernetes takes its version from linker flags of its build scripts. Without them /version
// returns "v0.0.0-master+$Format:%H$". Each go install would have to repeat the flags.

//go:linkname gitVersion k8s.io/component-base/version.gitVersion
var gitVersion string

//go:linkname gitMajor k8s.io/component-base/version.gitMajor
var gitMajor string

//go:linkname gitMinor k8s.io/component-base/version.gitMinor
var gitMinor string

// stampVersion makes /version return v, such as v1.37.2.
func stampVersion(v string) error {
	gitVersion = v
	major, rest, _ := strings.Cut(strings.TrimPrefix(v, "v"), ".")
	gitMajor = major
	gitMinor, _, _ = strings.Cut(rest, ".")
	return version.SetDynamicVersion(v)
}
