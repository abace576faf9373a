// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Origin is on whose behalf requests are made.
type Origin struct {
	// Controller is the controller's name. If there is one, requests say it in their user agent, as those of
	// [Client.ConfigFor] do.
	Controller string
	// Key is what is reconciled.
	Key any
	// Run tells one start of the controller from another, and Delivery one Reconcile of it from another.
	Run      string
	Delivery uint64
	// Term names the term of leadership under which it runs, empty for none.
	Term string
	// Decode is asked whether the objects of a resource that were written are wanted, as [Write.Object]. Default: none are.
	// It is called by whoever makes the request.
	Decode func(schema.GroupResource) bool
	// Late is told of each write that is refused because it begins after [Ledger.Close]. It is
	// called by the goroutine that makes the request. Default: it is not told.
	Late func(*LateWriteError)
}

// ReconcileID tells one Reconcile from all others: Run and Delivery. It is put together at each call.
func (o Origin) ReconcileID() string {
	if o.Run == "" && o.Delivery == 0 {
		return ""
	}
	return o.Run + "-" + strconv.FormatUint(o.Delivery, 10)
}

// How much a ledger keeps. Writes are needed one by one, to wait for them; reads only tell what has happened.
const (
	maxReads  = 100
	maxWrites = 10_000
)

// Ledger holds the requests that were made on behalf of one Reconcile, in the order in which they began. It is safe for
// concurrent use, also after the Reconcile has ended: the answers of requests that are still under
// way are recorded. See the package's documentation for what a ledger knows and what it cannot
// know.
type Ledger struct {
	origin Origin
	wrote  atomic.Bool

	mu            sync.Mutex // guards what follows, and what the records say
	first, last   *record
	reads, writes int32 // kept; writes are requests that may be writes, and what they have written if that is more than one object

	lostReads, lostWrites int32

	closed bool // no write may begin any more
}

// NewLedger makes an empty ledger.
func NewLedger(o Origin) *Ledger { return &Ledger{origin: o} }

type ledgerKey struct{}

// WithLedger returns a context whose requests are entered in l, if the client that makes them was built from the
// configuration of a [Client]. A nil l leaves them out.
func WithLedger(ctx context.Context, l *Ledger) context.Context {
	return context.WithValue(ctx, ledgerKey{}, l)
}

// WithLedgerOf is WithLedger for those who know the ledger only when there is a request: of is called for each, with the
// request's context, by whoever makes it. nil leaves the request out.
func WithLedgerOf(ctx context.Context, of func(ctx context.Context) *Ledger) context.Context {
	return context.WithValue(ctx, ledgerKey{}, of)
}

// ledgerOf returns the ledger of a request.
func ledgerOf(ctx context.Context) *Ledger {
	switch l := ctx.Value(ledgerKey{}).(type) {
	case *Ledger:
		return l
	case func(context.Context) *Ledger:
		return l(ctx)
	}
	return nil
}

// Origin returns what NewLedger was given.
func (l *Ledger) Origin() Origin { return l.origin }

// Wrote says whether there was a request that may have written something, whatever has become of it. Where it says no, Writes
// is empty. It takes no lock.
func (l *Ledger) Wrote() bool { return l.wrote.Load() }

// Writes returns what was written so far, or may have been, requests under way included. The slice is the caller's.
func (l *Ledger) Writes() []Write {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Write
	for r := l.first; r != nil; r = r.newer {
		if r.write {
			all = append(all, r.Write)
		}
		all = append(all, r.items...)
	}
	return all
}

// Requests returns the requests so far, those under way included: the first 100 reads and the first 10000 others. The slice
// is the caller's.
func (l *Ledger) Requests() []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Request, 0, l.reads+l.writes)
	for r := l.first; r != nil; r = r.newer {
		all = append(all, r.Request)
	}
	return all
}

// LeftOut returns how many reads, and how many requests that may have been writes, are missing from Requests and Writes
// because there were too many. A deletecollection counts for each object.
func (l *Ledger) LeftOut() (reads, writes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.lostReads), int(l.lostWrites)
}

// Close refuses the writes that begin from now on, with a *[LateWriteError]: the Reconcile has
// returned, and would not wait for them. Requests under way are not affected and are still
// recorded. Reads, dry runs and reviews of access are still allowed.
func (l *Ledger) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// enter makes a record of a request that begins, and reports whether it may begin.
func (l *Ledger) enter(r *record) (admitted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed && r.fenced() {
		return false
	}
	l.recordLocked(r)
	return true
}

func (l *Ledger) recordLocked(r *record) {
	mutates := r.mutates()
	if mutates && !r.DryRun {
		r.write, r.Effect, r.Unknown = true, Pending, "there is no answer yet"
		l.wrote.Store(true)
	}
	switch {
	case mutates && l.writes < maxWrites:
		l.writes++
	case mutates:
		l.lostWrites++
		return
	case l.reads < maxReads:
		l.reads++
	default:
		l.lostReads++
		return
	}
	if r.older = l.last; r.older != nil {
		r.older.newer = r
	} else {
		l.first = r
	}
	l.last = r
}

// record is one request in a ledger, whose mutex guards it.
type record struct {
	Write

	write bool    // it is a write, or may be
	items []Write // of a deletecollection

	older, newer *record
}

// madeLocked says whether an earlier write in the ledger has made this version of the object. It looks at the newest ones.
func (l *Ledger) madeLocked(w *record) bool {
	for r, n := l.last, 0; r != nil && n < 64; r, n = r.older, n+1 {
		if r != w && r.write && r.UID == w.UID && r.ResourceVersion == w.ResourceVersion && r.Resource == w.Resource && r.Group == w.Group {
			return true
		}
	}
	return false
}
