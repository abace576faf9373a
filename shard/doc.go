// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package shard divides the keys of controllers among replicas that all work at the same time.
//
//	mgr := manager.New(cfg, manager.Options{
//		Name:           "website-operator",
//		LeaderElection: &shard.Options{Election: leaderelection.Options{Lease: "website-operator"}},
//	})
//
// Without a manager, give controller.Options.Partition a [Group], and pass the controller's Lead to
// [Group.Run].
//
//	key ──Partitioner──▶ slot ──assignment──▶ member ──▶ its workers, its fence
//
// The parts of this picture:
//
//   - A key always belongs to one of 256 slots ([Partitioner]).
//   - A member is a replica that holds a Lease of its own, with the label [GroupLabel]. It renews
//     it as the elector of package leaderelection does, by default every sixth of LeaseDuration.
//     So a member makes at most 30 writes of Leases a minute, also while slots move.
//   - The assignment records the owner of each slot. It is an annotation of the group's Lease
//     ([SlotsAnnotation]). Any member may change it, by compare-and-swap.
//   - A controller reconciles only keys of slots that its process owns. Other keys never enter its
//     queue.
//   - Each request of a Reconcile carries the slot. The fence refuses it when the slot is released,
//     or the trust in the member's Lease is over.
//
// # Moving a slot
//
//	b joins   the slot shall move to b
//	b         "ready"                          a still works
//	a         takes no new key of the slot, finishes running Reconciles, closes its fence
//	a         "released", with the newest writes
//	b         waits until its caches show these writes, and begins with all keys of the slot
//
// So a slot is unserved while its running Reconciles finish, and for one write and one event. Slots
// that move to several members at once need a write for each of these.
//
// A member that stops leaves in the same way: the others take over its slots before it gives them
// up, for at most 5 s. A new member waits for Options.Settle before others give it slots. If a
// member leaves meanwhile, as in a rolling update, the new one gets its slots. So each slot moves
// once, and one or two twice if 256 is not a multiple of the members.
//
// When a member has not renewed its Lease for LeaseDuration, another member acquires the Lease by
// the rules of package leaderelection (L1), which ends the trust of the silent one, and gives its
// slots to others. A replica that loses its Lease goes on as a new member.
//
// # What a controller sees of the others
//
// By default, all members keep all objects in their caches, and divide only the keys. Handles with
// cache.Scope.Slots keep only the objects of the member's slots: see Options.SlotCache. The API
// server still sends every event to each member. A slot is ready for its next owner when the next
// owner's caches have its objects.
//
// The next owner reconciles each key of the slot at least once, from its caches. If it saw a
// deletion at most a minute before, it reconciles that key, too. With Scope.Slots a key may come
// twice: from the takeover, and as a new object of the cache. The takeover does not wait until
// the handlers have seen all new objects, because they may be slow, or other slots may still be
// listed.
//
// # Keys without a member
//
// A member reports unserved slots in [Status].Unserved and the log. A replica that uses another
// Partitioner is refused. Members do not compare keys. So these mistakes are found only by a test,
// with package shardtest:
//
//   - ByFunc functions that differ, although they have one name: no member, or several, reconcile a
//     key
//   - a cache without an object that another member's cache has, or a controller that does not run
//     on a member, also during a rolling update that adds it: no member reconciles the keys of that
//     member's slots
//
// # From one leader to a group, and back
//
// The group's Lease is the Lease of the leader. A group waits until no leader holds it, and holds
// it without a time limit while it has members: see [Holder]. So a rolling update can turn a
// Deployment with a leader into a group, and back: nothing works until the last leader has released
// the Lease, or the last member has left.
//
// If all members crash at the same time, new members go on, but a leader waits. To go back to one
// leader, make sure that no member runs, and delete the group's Lease: a leader takes over after
// LeaseDuration.
//
// # Changed by hand
//
// If the annotation is edited, put back or deleted, or its Lease is, all members stop within one
// event, and a member writes a new assignment. It gives a slot to a member when each former member
// has acknowledged that it has stopped, or is dead.
//
// An edit of a member's Lease proves nothing about the member: metadata.managedFields shows that
// its session, holder and renewal have several writers. The member writes them again, or the Lease
// expires.
//
// A watch may show nothing, without an error. So a member also reads the group's Lease every
// LeaseDuration, and the Lease of a silent member if it cannot acquire it because that has changed.
// If the API server was restored from an older backup, Run then returns an error: the process must
// start again, because its caches may have objects that do not exist. A second read, at least 3 s
// later, must confirm it, because one answer may come from a server that lags.
//
// Members with another Partitioner are refused, and stay standbys: to change it, stop all members
// first.
//
// # Permissions
//
// A member creates, gets, lists, watches, updates and deletes Leases in the namespace of the group.
// Kubernetes cannot limit these rights to Leases with a label.
//
// # Guarantees
//
//   - P1: One member of a group at a time reconciles a key.
//   - P2: Every slot is served, or reported as unserved with its age and the reason. Details:
//     [Status].Unserved of every member without a fault reports it.
//   - P3: A graceful move leaves a slot unserved while its running Reconciles finish, plus one
//     write and one event. A crash: for the Lease duration. Details: the duration counts from the
//     last renewal.
//   - P4: After a graceful move, the first Reconcile of a key waits until the caches show what
//     the former owners wrote and had read. Details: it sees the newest version of each resource,
//     and the latest deletions of their own (2 KiB for each release). A crash hands nothing over.
//   - P5: No request of a slot passes the fence after the slot's release.
//   - P6: A change of one member moves at most ⌈slots/members⌉ + 1 slots from or to each member
//     of equal weight. A rolling update moves each slot once. Details: there are 256 slots. The
//     bound holds if all members have the same weight.
//
// Not promised: that a process outside of the group does not write; and P1 if a person deletes the
// group's Lease and the Leases of living members at the same time. A replica that starts waits for
// members of another group of its program ([ProgramLabel]), but two that start together may miss
// each other.
//
// P7, what a cache with slots keeps, is in package cache. The rules are in shard/internal/slots, as
// pure code that a simulation tests.
//
// Stability: experimental.
package shard
