// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package term holds one term of leadership: its fencing token, the time for which it is trusted,
// and the fence that its requests pass.
//
// Package leaderelection makes a [Term] for each term of leadership and puts it into the contexts
// of what leads ([With]). The transport of every client.Client reads it from there ([Of]).
//
// # The fence
//
// L2: no request that carries a term passes the fence after its trust, reads included. The trust
// ends as soon as the monotonic or the wall clock says so, or [Term.End] is called. A request that
// waits for a connection, or in HTTP/2 for a stream, is canceled at that moment. When it has its
// connection, the clocks are read once more. A request on the wire is left alone. A refused request
// fails with a *[FencedError], for which errors.Is finds [ErrFenced].
// Requests that may write and carry no term are counted (hook.Client.Unfenced), and refused by a
// client that is Strict. [Without] marks those that any replica may make.
//
// Transports other than *http.Transport (rest.Config.Transport) may not report when they have a
// connection. Under them a request is canceled wherever it is, and a write is then Uncertain.
//
// A term costs a request about 1 µs and 11 allocations. A write with a ledger costs 0.1 µs more,
// or 0.3 µs where each is of another object, for [Term.Written].
//
// # Limits of a fence in the client
//
// A request on the wire may arrive when another process leads, however late, because a proxy may
// hold it back. Clocks that stood still together, as those of a virtual machine that was saved,
// show nothing either. Preconditions close both gaps: an update carries the resourceVersion that
// was read, and so should a patch or an apply (metadata.resourceVersion) and a delete (UID and
// resourceVersion). A write that comes too late then meets a conflict if the next leader has
// written.
//
// Where there is no version to name, an annotation with [Token].Holder narrows the gap, together
// with a ValidatingAdmissionPolicy that has the Lease as its parameter and compares the two. It is
// as good as the API server's informer of the Lease is current. docs/leader-election.md has the
// policy.
package term
