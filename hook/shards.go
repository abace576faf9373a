// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// ShardSlots reports slots that this process has acquired, released or lost at once. The goroutine
// that moves the slots sends it and ShardGroup: while an observer blocks, no slot moves to or from
// this process. A panic is logged.
type ShardSlots struct {
	// Group is the name of the group's Lease.
	Group  string
	Slots  int
	Change ShardChange
}

// ShardChange is what has happened to slots.
type ShardChange string

const (
	// ShardsAcquired: this process begins to act for them.
	ShardsAcquired ShardChange = "acquired"
	// ShardsReleased: it gives them up, because they move or it stops. It takes no new key of them;
	// running Reconciles may go on.
	ShardsReleased ShardChange = "released"
	// ShardsLost: they are taken away, because the member's Lease or the assignment is lost. The
	// work in them is fenced.
	ShardsLost ShardChange = "lost"
)

// ShardGroup describes a group of replicas, as this process sees it: after each change, at least
// every second while it is a member, and once when it is none any more. For the details, see
// shard.Group.Status, which is current then.
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
