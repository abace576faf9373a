// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Origin identifies the Reconcile for which requests are made.
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
	// Decode reports whether the written objects of a resource are wanted as [Write.Object]. The
	// goroutine that makes the request calls it. Default: none are.
	Decode func(schema.GroupResource) bool
	// Late is called for each write that is refused because it begins after [Ledger.Close], by the
	// goroutine that makes the request. Default: nothing is called.
	Late func(*LateWriteError)
}

// ReconcileID identifies one Reconcile: Run and Delivery. Each call builds it.
func (o Origin) ReconcileID() string {
	if o.Run == "" && o.Delivery == 0 {
		return ""
	}
	return o.Run + "-" + strconv.FormatUint(o.Delivery, 10)
}

// LateWriteError is the error of a write that began after its Reconcile had returned, in a goroutine
// that still uses its context. Nothing was sent: the next Reconcile of the key would not have waited
// for such a write to appear in the cache.
type LateWriteError struct {
	// Controller, Key and ReconcileID are those of the Reconcile.
	Controller  string
	Key         any
	ReconcileID string
	// Request is what was to be sent.
	Request Request
}

// Error names the Reconcile and the request, and the remedy.
func (e *LateWriteError) Error() string {
	return fmt.Sprintf("client: controller %q: %s was refused because the Reconcile of %v has returned; finish all writes before "+
		"Reconcile returns, or make those of background work with ledger.Without(ctx)", e.Controller, e.Request.String(), e.Key)
}

// How much a ledger keeps.
const (
	maxReads  = 100
	maxWrites = 10_000
)

// Ledger holds the requests of one Reconcile, in the order in which they began. It is safe for
// concurrent use. After the Reconcile it still records the answers of requests in flight.
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

// Wrote reports whether there was a request that may have written something, whatever its answer. It
// takes no lock.
func (l *Ledger) Wrote() bool { return l.wrote.Load() }

// Writes returns what was written so far, or may have been. The slice is the caller's.
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

// Requests returns the first 100 reads and the first 10000 other requests so far. The slice is the
// caller's.
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

// Close refuses the writes that begin from now on, with a *[LateWriteError]. Reads, dry runs and
// reviews of access are still allowed, and requests in flight go on.
func (l *Ledger) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// ContextKey is the key of the *Ledger in a context. A context of your own may make the ledger when
// the first request asks for it.
type ContextKey struct{}

// With returns a context whose requests are entered in l.
func With(ctx context.Context, l *Ledger) context.Context {
	return context.WithValue(ctx, ContextKey{}, l)
}

// Without returns a context without a ledger, for background work that outlives its Reconcile. The
// term of leadership stays.
func Without(ctx context.Context) context.Context { return With(ctx, nil) }

// Of returns the ledger of a context, nil for none.
func Of(ctx context.Context) *Ledger {
	l, _ := ctx.Value(ContextKey{}).(*Ledger)
	return l
}

// Entry is one request in a [Ledger]. The transport of client.Client keeps it up to date.
type Entry struct {
	ledger *Ledger
	write  Write   // guarded by the ledger's mutex, as is what follows; no Effect: it has written nothing
	items  []Write // of a deletecollection

	older, newer *Entry
}

// Begin enters a request in e, which is empty. If the error, a *[LateWriteError], is not nil, the
// request must not be made.
func (l *Ledger) Begin(e *Entry, r Request) error {
	e.ledger, e.write.Request = l, r
	if l.enter(e) {
		return nil
	}
	err := &LateWriteError{Controller: l.origin.Controller, Key: l.origin.Key, ReconcileID: l.origin.ReconcileID(), Request: r}
	if l.origin.Late != nil {
		l.origin.Late(err)
	}
	return err
}

// Request returns the request. Do not change it. Update may change Name, Took, Status and Err.
func (e *Entry) Request() *Request { return &e.write.Request }

func (l *Ledger) enter(e *Entry) (admitted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed && e.write.Stores() {
		return false
	}
	mutates := e.write.Mutates()
	if mutates && !e.write.DryRun {
		e.write.Effect, e.write.Unknown = Pending, "there is no answer yet"
		l.wrote.Store(true)
	}
	switch {
	case mutates && l.writes < maxWrites:
		l.writes++
	case mutates:
		l.lostWrites++
		return true
	case l.reads < maxReads:
		l.reads++
	default:
		l.lostReads++
		return true
	}
	if e.older = l.last; e.older != nil {
		e.older.newer = e
	} else {
		l.first = e
	}
	l.last = e
	return true
}

// Update lets f change what is known of the request, under the ledger's lock. An empty Effect means
// that it has written nothing. A write that becomes Stored at a version that another write in the
// ledger has made becomes Unchanged.
func (e *Entry) Update(f func(w *Write)) {
	l := e.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	before := e.write.Effect
	f(&e.write)
	if e.write.Effect == Stored && before != Stored && e.write.Verb != "create" && l.madeLocked(&e.write) {
		e.write.Effect = Unchanged
	}
}

// Collected enters the objects that a deletecollection has listed, and returns those for which there
// was room.
func (e *Entry) Collected(items []Write) []Write {
	l := e.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if free := int(maxWrites - l.writes); len(items) > free {
		l.lostWrites += int32(len(items) - free) //nolint:gosec // at most what 1 MiB can hold
		items = items[:free]
	}
	l.writes += int32(len(items))
	e.items = items
	return items
}

// madeLocked reports whether another write in the ledger has made this version of the object. It
// looks at the newest ones.
func (l *Ledger) madeLocked(w *Write) bool {
	for e, n := l.last, 0; e != nil && n < 64; e, n = e.older, n+1 {
		o := &e.write
		if o != w && o.Effect != "" && o.UID == w.UID && o.ResourceVersion == w.ResourceVersion && o.Resource == w.Resource && o.Group == w.Group {
			return true
		}
	}
	return false
}
