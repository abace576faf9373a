// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package upgrade runs fleets in which each second replica is of another version of Setpoint: three
// replicas on one Lease (e2e/ha), five with shards (examples/sharded), and three with webhooks and
// one certificate Secret (e2e/rotation). These judge every write, as without it. It has tests only.
//
//	make upgrade                            with the newest released version
//	make upgrade UPGRADEFLAGS='-from HEAD~100'
//
// The fleets' programs begin each replica as a process of the same program. Both versions have to
// understand the orders that a driver gives to a replica.
package upgrade
