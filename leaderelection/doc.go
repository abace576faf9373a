// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package leaderelection campaigns for a Lease and runs a function in each term of leadership. It
// campaigns again after a lost term, so losing the Lease need not end the process.
//
//	e, err := leaderelection.New(cfg, leaderelection.Options{Lease: "website-operator"})
//	err = e.Run(ctx, func(take, work context.Context) error {
//		for take.Err() == nil { // begin nothing new after a stop
//			step(work)          // a lost term ends work, too
//		}
//		return nil // then the Lease is released
//	})
//
// A manager does this for you. A program can keep client-go's elector: see [Observe].
//
//	campaign ──acquired──▶ lead(take, work) ──stop: take ends──▶ lead returns ──▶ release
//	    ▲                        │
//	    └──lead has returned ◀── lost: take and work end (cause ErrLost)
//
// # Timings
//
// All times count from when the last successful renewal was sent, not from its answer:
//
//	default                                               Options
//	2 s      the next renewal                             RetryPeriod
//	12 s     the term is lost: work is cancelled          RetryPeriod + RenewDeadline
//	13.5 s   the trust ends: the fence refuses requests   halfway to LeaseDuration
//	15 s     another process may lead                     LeaseDuration
//	32 s     Check fails if work still runs               StuckAfter after the loss
//
// A term is also lost when a renewal finds that the Lease was deleted, created again or written by
// another process. A renewal whose answer was lost costs one Get, not the term.
//
// Requests for the Lease have a connection of their own. A request that times out (after half of
// RenewDeadline, at least 1 s) closes it. So a half-open connection costs an attempt, not the term.
// HTTP/2 pings find it, too: see "Connections" in package client.
//
// A suspended process may notice the loss only after it wakes. Its work then has 3 s to return
// (LeaseDuration less RetryPeriod and RenewDeadline).
//
// # Requests without an answer
//
// A request times out after half of RenewDeadline, but not before 1 s. It may ignore that, for
// example in an exec plugin that hangs. The elector then goes on without its answer:
//
//	5 s      Trouble and the log report the request     half of RenewDeadline, from when it was sent
//	12 s     the term is lost, as after any failure     RetryPeriod + RenewDeadline
//	25 s     Check fails, if no request has returned    StuckAfter after the timeout
//
// At most three requests may be overdue; until one returns, the elector makes no further one. Then
// it campaigns within a RetryPeriod and a fifth, without a restart. A late answer never begins or
// extends a term. A write that is stored late is a record of this process like any other.
//
// # Acquiring a Lease
//
// A standby watches the Lease, and takes it after a release, or when its record has not changed for
// the leaseDurationSeconds that it contains. The Update has the UID and version of that record.
//
// The holder counts by its monotonic or wall clock, whichever has run further. A standby counts by
// its monotonic clock, from when it saw the Lease change. Changes by hand do not shorten its wait:
//
//	it has no holder, but not by a release               the wait begins again
//	its duration was shortened                           the wait is LeaseDuration of Options
//	it has our identity, but not a renewTime of ours     another process holds it
//	it is deleted                                        the wait goes on, and then begins again
//	it does not exist, and this process never saw it     it is created at once
//
// The holder of a deleted Lease may have renewed it unseen. So a standby first creates it without a
// term, and takes this record as any other. A process that has renewed it within LeaseDuration
// creates it at once. So does a process that starts then: delete no Lease whose holder may work.
//
// A standby that may not watch logs this and polls every RetryPeriod, plus up to a fifth at random.
// A takeover then comes that much later.
//
// # Handover
//
// A release stores the newest version of each resource that its term wrote, or that the informers
// of its controllers had shown, and its latest deletions, in an annotation of the Lease
// ([WrittenAnnotation]). The next holder moves them to its own term, whose first Reconciles wait
// until the caches show them. If that term lasts less than a minute, its release passes them on,
// too. After a crash, or a release by another elector, the last writes are unknown. An annotation
// of another version of this module counts as an unknown write.
//
// # Guarantees
//
//   - L1: Two processes never trust a term at the same time, if the rates of their clocks differ
//     by less than a tenth. Details: with the default durations.
//   - L3: A Lease is released only after the work under it has returned. Details: until lead has
//     returned, the Lease is renewed.
//   - L4: A release never frees another process's Lease.
//   - L5: A timer reports a lost term in time, whatever a request does. After it, [Elector.Run]
//     returns an error only if the work does not return before the Lease expires. Details: an
//     observer cannot delay the timer either. After such an error, the process should exit. With
//     [Options].Stay, Run waits instead. In both cases [Elector.Check] fails StuckAfter after the
//     loss.
//   - L6: A graceful hand-over takes one watch event and one write. After a crash it takes the
//     Lease duration. Details: the duration counts from the last renewal, and up to a twentieth
//     of RetryPeriod is added at random. The leader makes one request per RetryPeriod, and a
//     standby none while it watches. With [Options].Annotator, the leader makes one more at the
//     start of its term.
//   - L7: Replicas with client-go's elector can share the Lease: neither side takes it while the
//     other one trusts it. Details: so you can migrate one replica at a time. RetryPeriod must be
//     at least 1 s, because client-go compares renewals by the second.
//   - L9: After a graceful release, the first Reconcile of the next term waits until its caches
//     show what the last leader wrote and had read, except in a further cluster that cannot be
//     read yet. Details: this needs packages client and controller. The Reconcile never starts on
//     a cache that lacks a write of the released term within its scope. Only the last release
//     counts.
//
// For L2 (package term), the requests of a term are refused after its trust has ended, after lead
// has returned, and once another process was seen to hold the Lease.
//
// With [Observe], L2 to L5, L7 and L9 hold for the terms of a host's elector. The elector acquires
// and polls as in client-go, but it never takes the Lease of another process with the same
// identity.
//
// # Permissions
//
// The elector creates, gets, updates and watches its Lease. If a permission or the namespace is
// missing, the elector logs this once and tries again.
//
// # Concurrency
//
// [Elector.Run] starts a goroutine for each term, which calls lead, and joins it if lead returns in
// time. It also joins the goroutines of requests, or returns an error with the stacks of those that
// go on. Run's goroutine sends the events of Hook, so a slow observer delays the next renewal. A
// timer sends hook.LeaseLost, perhaps while an observer gets another event. With [Observe],
// client-go's elector sends the events, and a timer may send LeaseLost. Its requests end after
// RenewDeadline for it.
//
// Stability: stable.
package leaderelection
