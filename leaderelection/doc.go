// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package leaderelection says whether this process may act now.
//
// Leadership is a sequence of terms on one Lease. [Elector.Run] campaigns, calls a function for each term that it wins, and
// campaigns again when a term is lost:
//
//	campaign ──acquired──▶ term: lead(take, work) ──stop: take ends──▶ lead returns ──▶ release ──▶ Run returns
//	    ▲                        │
//	    └──lead has returned ◀── lost: take and work end (cause ErrLost)
//
// With the defaults, after the last renewal that succeeded was sent, however late its answer came:
//
//	0 s  sent                     12 s  the term is lost: work is cancelled
//	2 s  the next one             13.5 s  its trust is over: the fence refuses requests
//	                              15 s  somebody else may lead
//
// # Guarantees
//
// L1: two processes never trust a term at once, as long as the rates of their clocks differ by less than what is left of
// LeaseDuration when the trust is over (with the defaults a tenth). Our own trust counts from when the last successful renewal
// was sent, by the monotonic or the wall clock, whichever says so first. A rival's Lease counts from when we saw its record
// change, by the monotonic clock, and is taken by an Update with the UID and version of that very record. What is done by hand
// does not shorten this wait: a Lease whose duration or holder is removed, or which is deleted, is left alone as long as it was
// before. Only a process that has not seen the Lease before it was deleted creates it at once. Whoever holds it under our identity
// is a rival, too, unless the record is one that this process wrote: a renew time, to the microsecond, tells.
//
// L2 (with package term): what leads is given a [term.Term] in its contexts. Requests that carry it are refused when its trust
// is over, when somebody else was seen to hold the Lease, or when lead has returned. See package term for what is beyond any fence.
//
// L3: a Lease is released only after lead has returned. While it runs, also during a slow stop, the Lease is renewed.
//
// L4: a release never frees someone else's Lease: it is an Update with the version that we wrote last. If the API server refuses that,
// the Lease is read, must have our UID and a record of ours, and is written with the version that was read.
//
// L5: losing a term does not end the process if lead returns before the Lease expires, LeaseDuration
// after the last renewal was sent. A process that notices later, because it was suspended, becomes a
// standby, too: its work has what it would have had, LeaseDuration less RetryPeriod and RenewDeadline,
// from when it is told. If lead goes on longer, Run returns an error, and the process should exit; or,
// with [Options].Stay, Run waits, and does not campaign. Either way [Elector.Check] fails Grace after
// the loss, so that a liveness probe replaces a process that hangs. A term is lost RetryPeriod and
// RenewDeadline after the last renewal that succeeded was sent, or as soon as a renewal finds the Lease
// deleted, made anew, or written by another process. A renewal whose answer was lost is recognized, and
// costs one Get.
//
// L6: a graceful hand-over takes one watch event and one write, a crash LeaseDuration after the last renewal, and up to a
// twentieth of RetryPeriod more, at random, so that not all standbys write at once. The standbys watch the one Lease, by a field selector
// on its name, so that a rule with resourceNames is enough. Where they cannot, they read it each RetryPeriod and up to a fifth more: a
// hand-over takes that much longer. The leader makes one request per RetryPeriod, a standby none.
//
// L7: this works on one Lease with client-go's elector, in both directions, so that replicas can be migrated one by one. We take no
// record that has not been still for its leaseDurationSeconds, and client-go does not find ours expired while we trust it, provided
// that RetryPeriod is at least 1 s: client-go compares times of renewal by the second, and takes two in one second for one.
// Our term ends when the holder changes.
//
// L9 (with packages client and controller): the first Reconcile of a term never starts on a cache older than the in-scope writes of a
// term that was released gracefully. The release, in the same Update, annotates the Lease with the last writes ([WrittenAnnotation]);
// who acquires it takes them out, and hands them to its term ([term.Term.Inherited]). Only what the very last release has written
// counts, told by its time. A term that is released within a minute hands on what it has inherited, a longer one does not. After a
// crash, and after a release by client-go's elector, nothing is known.
//
// Until the next acquisition, anyone who may read the Lease can read the annotation: resources, versions, times, and how many objects
// were written. Namespaces, names, UIDs and labels are salted hashes. The salt is stored with them, so a reader can confirm a guessed
// name. The annotation has at most 16 KiB; the oldest writes that do not fit are only counted.
//
// # On a host's elector
//
// A program that runs client-go's elector already, as kube-controller-manager does, keeps it: [Observe] wraps its lock, so that its
// elector makes our terms. L2 to L5, L7 and L9 hold as above, as far as they are about a term: a release waits for what leads, and how
// a Lease is won, and when, is client-go's business (L1: what it takes it has timed, and a record of somebody else under our identity,
// which it would take at once, is refused it as long; L6: it polls).
//
// # What it needs
//
// The right to create Leases, and to get, update and watch the one. Without the right to watch it polls, and says so in the log.
// What goes wrong is logged once until it goes well or wrong in another way. A missing permission, and a missing namespace, are tried
// again and again: somebody may see to it.
//
// # Concurrency
//
// [Elector.Run] starts a goroutine for each term, which calls lead, and joins it, except where lead does not stop (L5), and while it
// campaigns one that watches. Hooks are called one after another by Run's goroutine; a slow one delays the next renewal.
package leaderelection
