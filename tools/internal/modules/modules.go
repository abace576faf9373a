// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package modules lists the modules of this repository and which of them are released.
package modules

import "strings"

// Library is the path of the root module.
const Library = "github.com/setpoint-dev/setpoint"

// Published returns the directories of the modules that are released together. The library is the
// first.
func Published() []string {
	return []string{
		".",
		"cmd/kubectl-setpoint",
		"cmd/setpoint",
		"cmd/setpoint-vet",
		"crbridge",
		"envtest/controlplane",
		"envtest/sim/crd",
		"examples/template", // for gonew
		"examples/website",  // for go run
		"tracing",
	}
}

// Libraries returns the directories of the modules whose packages others import.
func Libraries() []string { return []string{".", "crbridge", "envtest/sim/crd", "tracing"} }

// Unpublished returns the directories of the other modules. They are used in a clone only.
func Unpublished() []string {
	return []string{
		"bench", "bench/knative", "cmd/setpoint-vet/analyzers/testdata", "crbridge/testdata/cassandra",
		"crbridge/testdata/harness", "crbridge/testdata/memcached", "crbridge/testdata/moving", "crbridge/testdata/sandbox",
		"debug/pagetest", "e2e", "examples/cronjob", "examples/kubestyle", "examples/memcached", "tools", "tools/lint",
	}
}

// Workspace returns the environment variable for go commands in a module. Programs and examples are
// in go.work; the other modules stand alone.
func Workspace(dir string) string {
	if strings.HasPrefix(dir, "cmd/") || strings.HasPrefix(dir, "examples/") {
		return "GOWORK="
	}
	return "GOWORK=off"
}
