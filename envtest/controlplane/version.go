// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "unsafe" // for go:linkname

	"k8s.io/component-base/version"
)

// kubernetesVersion is the version of k8s.io/kubernetes in go.mod; a test compares them.
const kubernetesVersion = "v1.36.3"

// Kubernetes takes its version from linker flags of its build scripts. Without them /version
// returns "v0.0.0-master+$Format:%H$". Each go install would have to repeat the flags.

//go:linkname gitVersion k8s.io/component-base/version.gitVersion
var gitVersion string

//go:linkname gitMajor k8s.io/component-base/version.gitMajor
var gitMajor string

//go:linkname gitMinor k8s.io/component-base/version.gitMinor
var gitMinor string

func stampVersion() {
	gitVersion, gitMajor, gitMinor = kubernetesVersion, "1", "36"
	if err := version.SetDynamicVersion(kubernetesVersion); err != nil {
		panic(err) // impossible: it is the version set above
	}
}
