// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Origin is on whose behalf requests are made.
type Origin struct {
	// Controller is the controller's name. If it is set, the user agent of requests contains it, as
	// with client.Client.ConfigFor.
	Controller string
	// Key is what is reconciled.
	Key any
	// Run identifies one start of the controller, and Delivery one Reconcile of it.
	Run      string
	Delivery uint64
	// Term names the term of leadership under which it runs, empty for none.
	Term string
	// Decode reports whether the written objects of a resource are wanted as [Write.Object]. It is
	// called by the goroutine that makes the request. Default: none are.
	Decode func(schema.GroupResource) bool
	// Late is called for each write that is refused because it begins after [Ledger.Close], by the
	// goroutine that makes the request. Default: nothing is called.
	Late func(*LateWriteError)
}

// ReconcileID identifies one Reconcile: Run and Delivery. It is put together at each call.
func (o Origin) ReconcileID() string {
	if o.Run == "" && o.Delivery == 0 {
		return ""
	}
	return o.Run + "-" + strconv.FormatUint(o.Delivery, 10)
}

// How much a ledger keeps. Writes are needed one by one, to wait for them; reads only inform.
const (
	maxReads  = 100
	maxWrites = 10_000
)

// Ledger holds the requests that were made on behalf of one Reconcile, in the order in which they
// began. It is safe for concurrent use, also after the Reconcile has ended: the answers of requests
// under way are still recorded.
type Ledger struct {
	origin Origin
	wrote  atomic.Bool

	mu            sync.Mutex // guards what follows, and the entries
	first, last   *Entry
	reads, writes int32 // kept; a deletecollection counts once for each object as well

	lostReads, lostWrites int32

	closed bool // no write may begin any more
}

// New makes an empty ledger.
func New(o Origin) *Ledger { return &Ledger{origin: o} }

// Origin returns the origin that was given to New.
func (l *Ledger) Origin() Origin { return l.origin }

// Wrote reports whether there was a request that may have written something, whatever its answer.
// If not, Writes is empty. It takes no lock.
func (l *Ledger) Wrote() bool { return l.wrote.Load() }

// Writes returns what was written so far, or may have been, requests under way included. The slice
// is the caller's.
func (l *Ledger) Writes() []Write {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Write
	for e := l.first; e != nil; e = e.newer {
		if e.write.Effect != "" {
			all = append(all, e.write)
		}
		all = append(all, e.items...)
	}
	return all
}

// Requests returns the requests so far, those under way included: the first 100 reads and the first
// 10000 others. The slice is the caller's.
func (l *Ledger) Requests() []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Request, 0, l.reads+l.writes)
	for e := l.first; e != nil; e = e.newer {
		all = append(all, e.write.Request)
	}
	return all
}

// LeftOut returns how many reads, and how many requests that may have been writes, are missing from
// Requests and Writes because there were too many. A deletecollection counts for each object.
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

// ContextKey is the key of the *Ledger in a context. A context of your own may return a ledger for it
// that is made when the first request asks for it.
type ContextKey struct{}

// With returns a context whose requests are entered in l.
func With(ctx context.Context, l *Ledger) context.Context {
	return context.WithValue(ctx, ContextKey{}, l)
}

// Without returns a context whose requests are entered in no ledger on purpose, such as those of
// background work that outlives its Reconcile. The term of leadership stays.
func Without(ctx context.Context) context.Context { return With(ctx, nil) }

// Of returns the ledger of a context, nil for none.
func Of(ctx context.Context) *Ledger {
	l, _ := ctx.Value(ContextKey{}).(*Ledger)
	return l
}
