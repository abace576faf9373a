// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package term holds one term of leadership: its fencing token, the time for which it is trusted,
// and the fence for its requests.
//
//	t := term.FromContext(ctx) // in a Reconcile: its term, nil without leader election
//	t.Token().Holder           // the identity of this replica; "" without leader election
//	ctx = term.Without(ctx)    // for a write that any replica may make
//
// Package leaderelection makes the [Term] of each term of leadership and adds it to the contexts of
// the work. The transport of every client.Client reads it.
//
// # The fence
//
// The trust of a term ends when its time is over by the monotonic or the wall clock, or at
// [Term.End]. Then
//
//   - a new request is refused, reads included
//   - a request that waits for a connection, or in HTTP/2 for a stream, is cancelled
//   - a request that has just got its connection is refused: the clocks are read again
//   - a request on the wire goes on.
//
// A refused request fails with a *[FencedError]. Requests that may write and have no term are
// reported (hook.Unfenced), or refused by a client that requires one. [Without] marks
// requests that any replica may make.
//
// A term costs a request about 1 µs and 11 allocations (go test -bench Term ./internal/transport).
// A write with a ledger costs 0.1 µs more (-bench Trail ./internal/fence).
//
// # Parts
//
// The work of a slot of a shard group has a term of its own, a part of the member's. It can end
// before the member's, for example when another replica takes the slot over. Then only the part's
// requests are refused. A part costs a request about 2 µs and 19 allocations on top of the term.
//
// # Limits of a fence in the client
//
// A proxy may deliver a request after another process leads. Clocks that stood still together, as
// in a saved virtual machine, do not show the lost time. Preconditions close both gaps: send the
// resourceVersion with a patch or an apply, as an update does, and with a delete also the UID. A
// late write then fails with a conflict if the next leader has written.
//
// For writes without a version, use a ValidatingAdmissionPolicy that compares [Token].Holder in an
// annotation with the Lease. It may see a change of the Lease late: see docs/high-availability.md.
//
// # Guarantees
//
//   - L2: No request with a term passes the fence after the trust has ended. Writes without a
//     term are counted, or refused if RequireTerm. Details: this includes reads. A request of a
//     part does not pass after the end of the part or the trust of its term.
//
// Stability: settling.
package term
