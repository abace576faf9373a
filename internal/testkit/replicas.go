// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"os"
	"path/filepath"
	"sync/atomic"
)

// OtherVersion is an environment variable with a directory of programs of another version of
// Setpoint, by the names of the present ones. The tests in e2e/upgrade set it.
const OtherVersion = "SETPOINT_OTHER_VERSION"

// Replicas chooses the programs of a fleet whose replicas are processes of the fleet's program. The
// zero value is ready for use, also by several goroutines.
type Replicas struct{ started atomic.Int64 }

// Executable returns this program, but of the other version in each second call. Without
// OtherVersion, it is always this one.
func (r *Replicas) Executable() (string, error) {
	self, err := os.Executable()
	if dir := os.Getenv(OtherVersion); dir != "" && r.started.Add(1)%2 == 0 {
		return filepath.Join(dir, filepath.Base(self)), err
	}
	return self, err
}
