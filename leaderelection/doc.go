// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package leaderelection decides whether this process may act now.
//
// Leadership is a sequence of terms on one Lease. [Elector.Run] campaigns, calls a function for each
// term that it wins, and campaigns again when a term is lost:
//
//	campaign ──acquired──▶ lead(take, work) ──stop: take ends──▶ lead returns ──▶ release
//	    ▲                        │
//	    └──lead has returned ◀── lost: take and work end (cause ErrLost)
//
// With the defaults, after the last successful renewal was sent, however late its answer came:
//
//	0 s  sent                     12 s    the term is lost: work is cancelled
//	2 s  the next one             13.5 s  its trust is over: the fence refuses requests
//	                              15 s    another process may lead
//
// # Guarantees
//
// L1: two processes never trust a term at once, if the rates of their clocks differ by less than a
// tenth (with the defaults). Our trust counts from when the last successful renewal was sent, by the
// monotonic or the wall clock, whichever has run further. A rival's Lease counts from when we saw it
// change, by the monotonic clock. It is taken by an Update with the UID and version of that very
// record. Changes by hand do not shorten this wait: a Lease without its duration or holder, or that
// is deleted, is left alone as long as before. Only a process that never saw it creates it at once.
// A holder with our identity is a rival, too, unless this process wrote the record's renew time.
//
// L2 (with package term): the contexts of lead carry a [term.Term]. Its requests are refused when the
// trust is over, when another process is seen to hold the Lease, or when lead has returned.
//
// L3: a Lease is released only after lead has returned. Until then it is renewed.
//
// L4: a release never frees a Lease of another process: it is an Update with the version that we wrote
// last. If that conflicts, the Lease is read, and must have our UID and a record of ours.
//
// L5: a lost term does not end the process if lead returns before the Lease expires. A process that
// notices later, because it was suspended, has LeaseDuration less RetryPeriod and RenewDeadline from
// then on. If lead goes on longer, Run returns an error, and the process should exit. With
// [Options].Stay, Run waits and does not campaign. In both cases [Elector.Check] fails Grace after
// the loss. A term is lost RetryPeriod and RenewDeadline after the last successful renewal was sent,
// or when a renewal finds the Lease deleted, made anew or written by another process. A renewal
// whose answer was lost is recognized, and costs one Get.
//
// L6: a graceful hand-over takes one watch event and one write. A crash takes LeaseDuration from the
// last renewal, and up to a twentieth of RetryPeriod, at random. The leader makes one request per
// RetryPeriod, a standby none: it watches the Lease, by its name. Without the right to watch it reads
// the Lease each RetryPeriod and up to a fifth more, logs that, and takes over that much later.
//
// L7: this works on one Lease with client-go's elector, in both directions, so replicas can be
// migrated one by one. RetryPeriod must be at least 1 s then: client-go compares renewals by the
// second. Our term ends when the holder changes.
//
// L9 (with packages client and controller): the first Reconcile of a term never starts on a cache
// older than the in-scope writes of a term that was released gracefully. The release annotates the
// Lease with the last writes ([WrittenAnnotation]). The next holder removes them, and hands them to
// its term ([term.Term.Inherited]). Only the very last release counts, recognized by its time. A term
// that is released within a minute passes on what it inherited. After a crash, and after a release
// by client-go's elector, nothing is known.
//
// Until then, anyone who may read the Lease can read the annotation: resources, versions, times and
// the number of objects. Namespaces, names, UIDs and labels are salted hashes. The salt is stored with
// them, so a reader can confirm a guessed name. The annotation has at most 16 KiB; the oldest writes
// that do not fit are only counted.
//
// # On a host's elector
//
// A program that runs client-go's elector already can keep it: [Observe] wraps its lock. L2 to L5, L7
// and L9 then hold for its terms. How a Lease is won is client-go's business, which polls; but a
// record of another process under our identity is left alone as in L1.
//
// # Permissions
//
// The right to create Leases, and to get, update and watch the one. A missing permission or namespace
// is logged once, and tried again.
//
// # Concurrency
//
// [Elector.Run] starts a goroutine for each term, which calls lead, and joins it, except where lead
// does not stop (L5). Hooks are called one after another by Run's goroutine; a slow one delays the
// next renewal.
package leaderelection
