// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package upgrade runs fleets in which each second replica is of another version of Setpoint: three
// replicas on one Lease (internal/scenario/ha), five with shards (examples/sharded), and three with
// webhooks and one certificate Secret (internal/scenario/rotation). These judge every write, as
// without it.
//
//	make upgrade                            with the newest released version
//	make upgrade UPGRADEFLAGS='-from HEAD~100'
//
// The fleets' programs begin each replica as a process of the same program. Both versions have to
// understand the orders that a driver gives to a replica.
package upgrade

import (
	"os"
	"path/filepath"
	"sync/atomic"
)

// Other is an environment variable with a directory of programs of the other version, by the names
// of the present ones.
const Other = "SETPOINT_OTHER_VERSION"

// Replicas chooses programs. The zero value is ready for use, also by several goroutines.
type Replicas struct{ started atomic.Int64 }

// Executable returns this program, but of the other version in each second call. If there is none,
// it is always this one.
func (r *Replicas) Executable() (string, error) {
	self, err := os.Executable()
	if dir := os.Getenv(Other); dir != "" && r.started.Add(1)%2 == 0 {
		return filepath.Join(dir, filepath.Base(self)), err
	}
	return self, err
}
