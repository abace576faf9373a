// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

// LeaderElection is what package leaderelection reports.
type LeaderElection struct {
	// Acquired is called when a term begins.
	Acquired func(lease string)
	// Lost is called when a term ends against our will: the Lease could not be renewed in time, or somebody else holds it.
	Lost func(lease string)
	// Released is called after the Lease was given up. err is why it could not be; a rival then waits for it to expire.
	Released func(lease string, err error)
	// Leader is called when another identity is seen to hold the Lease.
	Leader func(lease, identity string)
	// Cold is called when a replica campaigns although not all of its controllers are synced, because it has waited for long
	// enough (L8). lease is its namespace and name.
	Cold func(lease string)
}
