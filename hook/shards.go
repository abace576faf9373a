// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// Shards observes package shard. The goroutine that moves the slots of this process calls its
// functions: while one of them blocks, no slot moves to or from this process. A panic is logged.
type Shards struct {
	// Observed is called after each change that this process sees, at least every second while it
	// is a member, and once when it is none any more.
	Observed func(ShardGroup)
	// Acquired is called when this process begins to act for slots.
	Acquired func(ShardSlots)
	// Released is called when it gives slots up, because they move or it stops. It takes no new key
	// of them; running Reconciles may go on.
	Released func(ShardSlots)
	// Lost is called when slots are taken away, because the member's Lease or the assignment is
	// lost. The work in them is fenced.
	Lost func(ShardSlots)
}

// ShardSlots is a number of slots that this process has acquired, released or lost at once.
type ShardSlots struct {
	// Group is the name of the group's Lease.
	Group string
	Slots int
}

// ShardGroup describes a group of replicas, as this process sees it. For the details, see
// shard.Group.Status, which is current when Observed is called.
type ShardGroup struct {
	// Group is the name of the group's Lease.
	Group string
	// Member is the name of this member's Lease. It is empty while this process is no member; then
	// all other fields are zero.
	Member string
	// Epoch identifies the newest assignment. It is 0 without a valid one.
	Epoch uint64
	// Members is the number of members.
	Members int
	// Owned is the number of slots of this process. Moving and Unserved are numbers of the group's
	// slots that are about to change their owner, and for which no member acts.
	Owned, Moving, Unserved int
	// UnservedSince is when the oldest unserved slot began, or zero. Reason is why.
	UnservedSince time.Time
	Reason        string
	// First reports whether this member comes first of those that are alive. It reports for all,
	// for example as a Kubernetes Event.
	First bool
}
