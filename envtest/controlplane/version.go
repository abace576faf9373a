// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "unsafe" // for go:linkname

	"k8s.io/component-base/version"
)

// kubernetesVersion is the version of k8s.io/kubernetes in go.mod; a test compares the two.
const kubernetesVersion = "v1.36.3"

// Kubernetes takes its version from the linker flags of its own build scripts, and without them /version says
// "v0.0.0-master+$Format:%H$". Flags would have to be repeated by everyone who installs this program by version.

//go:linkname gitVersion k8s.io/component-base/version.gitVersion
var gitVersion string

//go:linkname gitMajor k8s.io/component-base/version.gitMajor
var gitMajor string

//go:linkname gitMinor k8s.io/component-base/version.gitMinor
var gitMinor string

// stampVersion makes /version tell the truth.
func stampVersion() {
	gitVersion, gitMajor, gitMinor = kubernetesVersion, "1", "36"
	if err := version.SetDynamicVersion(kubernetesVersion); err != nil {
		panic(err) // cannot be: it is the version that was just set
	}
}
