// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// LeaderElection observes package leaderelection.
type LeaderElection struct {
	// Campaigning is called when this replica begins to campaign: at the start, and after each lost
	// term.
	Campaigning func(lease string)
	// TookOver is called before Acquired if another process was seen to hold the Lease.
	TookOver func(LeaseTakeover)
	// Acquired is called at the beginning of a term, before its work.
	Acquired func(lease string)
	// Renewed is called after each attempt to renew the Lease.
	Renewed func(LeaseRenewal)
	// Lost is called when a term is lost: the Lease was not renewed in time, or another process
	// holds it. A release may be the first to notice. The work of the term may still run. A timer
	// calls it, perhaps while another hook runs.
	Lost func(lease string)
	// Released is called when all work has stopped and the Lease is released. If err is not nil,
	// the release failed, and other replicas wait until the Lease expires.
	Released func(lease string, err error)
	// Leader is called when another identity is seen to hold the Lease.
	Leader func(lease, identity string)
	// CampaignedUnsynced is called by a manager, when a replica campaigns after 2 minutes although
	// some of its controllers are not synced.
	CampaignedUnsynced func(lease string)
	// Trouble is called when the Lease cannot be read or written, or a request has no answer in its
	// time: once for each change of the error, and with nil after the recovery.
	Trouble func(lease string, err error)
}

// LeaseTakeover reports that this process acquired a Lease that another process held.
type LeaseTakeover struct {
	Lease string
	// From is the identity of the previous holder.
	From string
	// Gap is the time without a leader, as seen here: from the last renewal, or the release, to the
	// acquisition.
	Gap time.Duration
}

// LeaseRenewal describes one attempt to renew a Lease that this process holds.
type LeaseRenewal struct {
	Lease string
	Took  time.Duration
	// Slowpath reports that the Lease had changed, so the renewal took more than one request.
	Slowpath bool
	Err      error
}
