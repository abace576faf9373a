// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"reflect"
	"testing"

	"github.com/setpoint-dev/setpoint/envtest/sim"
)

// TestServer_HasFewMethods keeps the work in the packages below the sim.
func TestServer_HasFewMethods(t *testing.T) {
	const most = 25
	if n := reflect.TypeFor[*sim.Server]().NumMethod(); n > most {
		t.Errorf("Server has %d methods, want at most %d: put the code into a package below internal", n, most)
	}
}
