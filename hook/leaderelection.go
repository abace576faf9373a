// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// LeaseCampaign reports that this replica begins to campaign: at the start, and after each lost
// term.
type LeaseCampaign struct{ Lease string }

// LeaseAcquired reports the beginning of a term, before its work.
type LeaseAcquired struct{ Lease string }

// LeaseLost reports a lost term: the Lease was not renewed in time, or another process holds it. A
// release may be the first to notice. The work of the term may still run. A timer sends it, perhaps
// while an observer gets another event.
type LeaseLost struct{ Lease string }

// LeaseReleased reports that all work has stopped and the Lease is released. If Err is not nil, the
// release failed, and other replicas wait until the Lease expires.
type LeaseReleased struct {
	Lease string
	Err   error
}

// LeaseHolder reports that another identity is seen to hold the Lease.
type LeaseHolder struct{ Lease, Identity string }

// LeaseUnsynced reports that a replica of a manager campaigns after 2 minutes although some of its
// controllers are not synced.
type LeaseUnsynced struct{ Lease string }

// LeaseTrouble reports that the Lease cannot be read or written, or a request has no answer in its
// time: once for each change of the error, and with nil after the recovery.
type LeaseTrouble struct {
	Lease string
	Err   error
}

// LeaseTakeover reports, before LeaseAcquired, that this process acquired a Lease that another
// process was seen to hold.
type LeaseTakeover struct {
	Lease string
	// From is the identity of the previous holder.
	From string
	// Gap is the time without a leader, as seen here: from the last renewal, or the release, to the
	// acquisition.
	Gap time.Duration
}

// LeaseRenewal reports an attempt to renew a Lease that this process holds.
type LeaseRenewal struct {
	Lease string
	Took  time.Duration
	// Slowpath reports that the Lease had changed, so the renewal took more than one request.
	Slowpath bool
	Err      error
}
