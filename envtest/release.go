// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
)

// KubernetesVersion is the version of the control plane that Start builds by default.
const KubernetesVersion = "v1.37.2"

// versionVariable has the minor version for every Start that names none.
const versionVariable = "SETPOINT_KUBERNETES"

// release is a version of Kubernetes that Start can build, such as v1.37.2.
type release string

// releases returns all of them, the default first.
func releases() []release { return []release{KubernetesVersion, "v1.36.3", "v1.35.4"} }

// minor returns the version as in Options.Version, such as 1.37.
func (r release) minor() string {
	version := strings.TrimPrefix(string(r), "v")
	return version[:strings.LastIndexByte(version, '.')]
}

// requirements returns the name of the module file in envtest/controlplane, without its extension.
func (r release) requirements() string {
	if r == KubernetesVersion {
		return "go"
	}
	return "kubernetes-" + r.minor()
}

// tag returns the build constraint of files that only this release compiles.
func (r release) tag() string { return "kubernetes" + r.minor() }

// findRelease returns the release of a minor version, or the default if it is empty. from is where
// the version comes from.
func findRelease(from, version string) (release, error) {
	if version == "" {
		return KubernetesVersion, nil
	}
	var minors []string
	for _, r := range releases() {
		minors = append(minors, r.minor())
	}
	i := slices.Index(minors, version)
	if i < 0 {
		return "", fmt.Errorf("envtest: %s is %q; use a supported version: %s", from, version, strings.Join(minors, ", "))
	}
	return releases()[i], nil
}

// release returns the release to build.
func (o Options) release() (release, error) {
	if o.Version != "" {
		return findRelease("Options.Version", o.Version)
	}
	return findRelease(versionVariable, os.Getenv(versionVariable))
}

// givenProgram returns the file that SETPOINT_CONTROLPLANE names, if any.
func (o Options) givenProgram() (string, error) {
	path := os.Getenv(programVariable)
	if path == "" {
		return "", nil
	}
	version, from := cmp.Or(o.Version, os.Getenv(versionVariable)), versionVariable
	if o.Version != "" {
		from = "Options.Version"
	}
	if version != "" {
		return "", fmt.Errorf("envtest: %s=%s has its own version of Kubernetes, and %s is %s; unset one of them", programVariable, path, from, version)
	}
	if err := checkProgram(path); err != nil {
		return "", fmt.Errorf("envtest: %s=%s: %w; name a file made by \"go run %s/envtest/cluster fetch\", or unset it", programVariable, path, err, modulePath)
	}
	return path, nil
}
