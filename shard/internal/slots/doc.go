// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package slots has the rules by which a group of replicas divides 256 slots of keys: see package
// shard, which runs them.
//
// The rules are pure code, without a clock, lock or request.
//
//		key ──shard.By──▶ slot ──Assignment──▶ member ──View.Owns──▶ may this process write?
//
//	  - A key always belongs to one of 256 slots.
//	  - A member is a replica that holds a Lease of its own. Each time that it acquires the Lease is
//	    another session of the member, with another [ID].
//	  - The [Assignment] is one stored object: the owner of each slot, and where the slot moves to.
//	    Any member may change it, by compare-and-swap.
//	  - [Desired] computes who should own each slot. [Assignment.Propose] starts the moves to it.
//	  - A [View] is what one session of a member knows. It decides what the member may do.
//
// # Moving a slot
//
// The next owner prepares while the owner works. So a slot is without an owner that acts only while
// running Reconciles finish:
//
//		Propose   the slot moves to b        a works, b fills its caches
//		Ready     b is ready: the slot       a takes no new key of it, and finishes running Reconciles
//	          drains
//		Stop      (nothing is stored)        a's fence is closed for good for this ownership
//		Release   b owns the slot, under     b works when its caches show what a wrote (State.After)
//	          another epoch
//
// A slot without an owner, as after a crash, has a new owner at once, which then fills its caches.
//
// # Why an old view is safe
//
// While a member is alive, only this member takes a slot from itself. So however late it sees other
// changes, its own slots stay its own. Other members may take its slots only after a later session
// has acquired its Lease, because then the fence refuses each request of the earlier one: see
// package leaderelection.
//
// # The stored assignment is changed by hand
//
// A sum, the field manager and the resourceVersion show an edit, an old copy, and a deletion. Then
// earlier owners may go on without knowing. So a new assignment gives no slot to a member until
//
//   - a list of the Leases, made after it was stored, shows which members may be such owners
//     ([Assignment.Listed]), and
//   - each of these has acknowledged it, or is dead.
//
// This rests on the Leases: to delete the assignment and the Leases of living members together, and
// to start a new member within LeaseDuration, can give a slot two owners.
//
// # Guarantees
//
// These rules keep promises of package shard, for members that follow the rules of the methods:
//
//   - For P1: the fences of two members are never open for a slot at the same time.
//   - For P2: every slot has an owner that acts, or [View.Unserved] reports it with its age: on
//     every member without a fault, or on the owner that has stopped it.
//   - For P4: after any number of graceful moves, an owner knows what all former owners wrote
//     ([State].After) until one of them has settled it. After a crash, or when the assignment was
//     lost, this is unknown.
//   - For P5: after a release, the former owner's fence is closed for the slot, whatever records
//     arrive in whatever order.
//   - For P6: a change of one member moves at most ⌈slots/members⌉ + 1 slots from or to each
//     member, if all have the same weight. No balanced assignment needs fewer moves.
//
// P3, how long a move leaves a slot unserved, depends on the driver: see package shard.
//
// # Testing
//
// A simulation in virtual time runs these rules with crashes, suspended members, slow and lost
// events and answers, and edits by hand. SETPOINT_FULL=1 makes it a million changes of members.
package slots
