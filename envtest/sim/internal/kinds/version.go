// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"runtime"

	apiversion "k8s.io/apimachinery/pkg/version"
)

// Version describes the server. Its minor version is the one whose kinds are served.
func Version() *apiversion.Info {
	return &apiversion.Info{
		Major: "1", Minor: "37", EmulationMajor: "1", EmulationMinor: "37", MinCompatibilityMajor: "1", MinCompatibilityMinor: "36",
		GitVersion: "v1.37.2+sim", GitTreeState: "clean", BuildDate: "1970-01-01T00:00:00Z",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}
