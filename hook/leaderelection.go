// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// LeaderElection is what package leaderelection reports. The metrics of client-go's elector follow from it:
// leader_election_master_status is 1 from Acquired to the Lost or Released that follows, and 0 since Campaigning;
// leader_election_slowpath_total counts what was Renewed with Slowpath and without Err.
type LeaderElection struct {
	// Campaigning is called when this replica begins to want the Lease: at the start, and after each term that it has lost.
	Campaigning func(lease string)
	// TookOver is called before Acquired where somebody else was seen to hold the Lease before.
	TookOver func(LeaseTakeover)
	// Acquired is called when a term begins.
	Acquired func(lease string)
	// Renewed is called after each try to renew the Lease.
	Renewed func(LeaseRenewal)
	// Lost is called when a term ends against our will: the Lease could not be renewed in time, or somebody else holds it, which may
	// be seen only when it is to be released. Its work may go on for a while.
	Lost func(lease string)
	// Released is called after the Lease was given up, when all work has stopped. err is why it could not be; a rival then waits for
	// it to expire.
	Released func(lease string, err error)
	// Leader is called when another identity is seen to hold the Lease.
	Leader func(lease, identity string)
	// Cold is called when a replica campaigns although not all of its controllers are synced, because it has waited for long
	// enough (L8).
	Cold func(lease string)
	// Trouble is called when the Lease cannot be read or written, once for as long as the reason stays the same, and with nil when
	// it can be again.
	Trouble func(lease string, err error)
}

// LeaseTakeover says that this process holds a Lease that somebody else held.
type LeaseTakeover struct {
	// Lease is the name of the Lease, From the identity of who held it.
	Lease, From string
	// Gap is for how long nobody was seen to lead: from when the Lease was last seen to be renewed, or was seen to be released, until
	// it was ours.
	Gap time.Duration
}

// LeaseRenewal is one try to renew a Lease that this process holds.
type LeaseRenewal struct {
	// Lease is the name of the Lease.
	Lease string
	// Took is how long it lasted.
	Took time.Duration
	// Slowpath says that it took more than the one request of a usual renewal: the Lease was not as this process had left it, and had
	// to be read.
	Slowpath bool
	// Err is why it was not renewed, nil if it was.
	Err error
}
