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
// # Guarantees
//
// L3: a Lease is released only after lead has returned. While it runs, also during a slow stop, the Lease is renewed.
//
// L4: a release never frees someone else's Lease: it reads the Lease, verifies the holder, and writes with the
// resourceVersion that it read.
//
// L5: losing a term does not end the process if lead returns before the Lease expires, LeaseDuration after the last renewal
// was sent. Otherwise Run returns an error then, and the process should exit. A term is lost RetryPeriod and
// RenewDeadline after the last renewal that succeeded was sent, however late its answer came and even if the process was
// suspended meanwhile, or as soon as another holder is read.
//
// L2 (with package client): what leads is given a [client.Term] in its contexts. Requests that carry it are refused from when
// the term is lost, or lead has returned. If the process or its machine stood still meanwhile, so that neither was noticed in
// time, they are refused from when half of the time is over that is left of LeaseDuration after RetryPeriod and RenewDeadline
// (with the defaults 13.5 s after the last renewal was sent), by the monotonic or the wall clock, whichever says so first. See
// package client for what is beyond any fence.
//
// # What it stands on
//
// Acquiring and renewing are client-go's elector on coordination/v1 Leases, so the records are those that every Kubernetes
// component writes. Releasing is our own: client-go releases before the work has ended, and can free a Lease that is no
// longer its own.
//
// # Concurrency
//
// [Elector.Run] starts client-go's goroutine for each term, which calls lead, and joins it, except where lead does not stop
// (L5). Hooks are called one after another by that goroutine and by Run's; a slow one delays the next renewal.
package leaderelection
