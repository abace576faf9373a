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

// Origin identifies the Reconcile that makes the requests.
type Origin struct {
	// Controller is the controller's name. If set, the transport adds it to the configured user
	// agent.
	Controller string
	// Key is the reconciled key.
	Key any
	// Run identifies one start of the controller, and Delivery one Reconcile after it.
	Run      string
	Delivery uint64
	// Term is the token of the term of leadership, or empty.
	Term string
	// Prove asks for [Write.Content] of all updates and patches. Default: only of those without
	// [Write.Made].
	Prove bool
	// Owner is asked about written objects, and told about late writes. Default: none.
	Owner Owner
}

// Owner owns ledgers, such as a controller. The goroutine of a request calls its methods.
type Owner interface {
	// Decodes reports whether to keep written objects of a resource in [Write.Object].
	Decodes(r schema.GroupResource) bool
	// Late is called for each write that a closed ledger refuses.
	Late(err *LateWriteError)
}

// ReconcileID returns an Origin's Run and Delivery with a hyphen between them, or "" if both are
// zero.
func ReconcileID(run string, delivery uint64) string {
	if run == "" && delivery == 0 {
		return ""
	}
	return run + "-" + strconv.FormatUint(delivery, 10)
}

// LateWriteError is the error of a write that began after its Reconcile had returned. It was not
// sent, because the key's next Reconcile would not wait for it.
type LateWriteError struct {
	// Controller, Key and ReconcileID identify the Reconcile.
	Controller  string
	Key         any
	ReconcileID string
	// Request was not sent.
	Request Request
}

// Error names the Reconcile, the request and the remedy.
func (e *LateWriteError) Error() string {
	return fmt.Sprintf("client: controller %q: %s was refused because the Reconcile of %v has returned; finish all writes before "+
		"Reconcile returns, or make those of background work with ledger.Without(ctx)", e.Controller, e.Request.String(), e.Key)
}

const (
	maxReads  = 100
	maxWrites = 10_000
)

// Ledger holds the requests of one Reconcile in the order of their starts. It is safe for
// concurrent use. It still records answers that come after the Reconcile.
type Ledger struct {
	origin Origin
	wrote  atomic.Bool

	mu            sync.Mutex // guards the fields below, and the entries
	first, last   *Entry
	reads, writes int32 // a deletecollection also counts each object

	lostReads, lostWrites int32

	closed bool // no write may begin
}

// New returns an empty ledger.
func New(o Origin) *Ledger { return &Ledger{origin: o} }

// Origin returns New's argument.
func (l *Ledger) Origin() Origin { return l.origin }

// Wrote reports whether a request may have written something. It takes no lock.
func (l *Ledger) Wrote() bool { return l.wrote.Load() }

// Writes returns the writes so far, including those in flight or with a lost answer. You own the
// slice.
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

// Requests returns the requests so far, within the limits. You own the slice.
func (l *Ledger) Requests() []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Request, 0, l.reads+l.writes)
	for e := l.first; e != nil; e = e.newer {
		all = append(all, e.write.Request)
	}
	return all
}

// LeftOut returns the numbers of reads and possible writes beyond the limits. A deletecollection
// counts each object.
func (l *Ledger) LeftOut() (reads, writes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.lostReads), int(l.lostWrites)
}

// Close makes later writes fail with a *[LateWriteError]. Reads, dry runs, access reviews and
// requests in flight go on.
func (l *Ledger) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// ContextKey is the key of a context's *Ledger. A context type of your own may create the ledger
// for the first request.
type ContextKey struct{}

// With returns a context that records its requests in l.
func With(ctx context.Context, l *Ledger) context.Context {
	return context.WithValue(ctx, ContextKey{}, l)
}

// Without returns a context without a ledger, for background work that outlives its Reconcile. It
// keeps the term of leadership.
func Without(ctx context.Context) context.Context { return With(ctx, nil) }

// FromContext returns the context's ledger, or nil.
func FromContext(ctx context.Context) *Ledger {
	l, _ := ctx.Value(ContextKey{}).(*Ledger)
	return l
}

// Entry is one request in a [Ledger], which the transport updates. After Begin, Update and
// Collected are safe for concurrent use.
type Entry struct {
	ledger *Ledger
	write  Write   // guarded by ledger.mu, as are the fields below
	items  []Write // of a deletecollection

	older, newer *Entry
}

// Begin records a request in the empty e. After an error, a *[LateWriteError], do not send the
// request.
func (l *Ledger) Begin(e *Entry, r Request) error {
	e.ledger, e.write.Request = l, r
	if l.enter(e) {
		return nil
	}
	o := &l.origin
	err := &LateWriteError{Controller: o.Controller, Key: o.Key, ReconcileID: ReconcileID(o.Run, o.Delivery), Request: r}
	if o.Owner != nil {
		o.Owner.Late(err)
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

// Update calls f under the ledger's lock to change the entry. Effect "" means that nothing was
// written. If another write in the ledger made the same version, Stored becomes Unchanged.
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

// Collected records the objects that a deletecollection listed, as many as fit into the ledger, and
// returns these.
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

func (l *Ledger) madeLocked(w *Write) bool {
	for e, n := l.last, 0; e != nil && n < 64; e, n = e.older, n+1 {
		o := &e.write
		if o != w && o.Effect != "" && o.UID == w.UID && o.ResourceVersion == w.ResourceVersion && o.Resource == w.Resource && o.Group == w.Group {
			return true
		}
	}
	return false
}
