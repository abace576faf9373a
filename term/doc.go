// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package term holds one term of leadership: its fencing token, the time for which it is trusted,
// and the fence that its requests pass.
//
// Package leaderelection makes a [Term] for each term of leadership and puts it into the contexts
// of the work that leads ([With]). The transport of every client.Client reads it from there ([Of]).
//
// # The fence
//
// L2: no request that carries a term passes the fence after its trust, reads included. The trust
// ends as soon as the monotonic or the wall clock says so, or [Term.End] is called. A request that
// waits for a connection, or in HTTP/2 for a stream, is canceled at that moment. When it has its
// connection, the clocks are read once more. A request on the wire is left alone. A refused request
// fails with a *[FencedError], for which errors.Is finds [ErrFenced].
//
// Requests that may write and carry no term are counted (hook.Client.Unfenced); a Strict client
// refuses them. [Without] marks requests that any replica may make.
//
// Transports other than *http.Transport (rest.Config.Transport) may not report when they have a
// connection. With them a refused write is Uncertain.
//
// A term costs a request about 1 µs and 11 allocations. A write with a ledger costs 0.1 µs more,
// or 0.3 µs if each is of another object, for [Term.Written].
//
// # Limits of a fence in the client
//
// A proxy may hold back a request on the wire until another process leads. Clocks that stood still
// together, as those of a saved virtual machine, show nothing either. Preconditions close both
// gaps: an update carries the resourceVersion that was read, and so should a patch or an apply
// (metadata.resourceVersion) and a delete (UID and resourceVersion). A late write is then a
// conflict if the next leader has written.
//
// Without a version to name, an annotation with [Token].Holder narrows the gap: a
// ValidatingAdmissionPolicy with the Lease as its parameter compares the two. It is as good as the
// API server's informer of the Lease is current. docs/leader-election.md has the policy.
package term
