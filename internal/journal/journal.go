// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package journal fills a [ledger.Ledger]: the transport records requests in a [Journal], and a
// controller makes one for each Reconcile.
package journal

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/internal/contextkey"
	"github.com/setpoint-dev/setpoint/ledger"
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
	// Owner is asked about written objects, and told about late writes. Default: none.
	Owner Owner
}

// Owner owns journals, such as a controller. The goroutine of a request calls its methods.
type Owner interface {
	// Decodes reports whether to keep written objects of a resource in [ledger.Write].Object.
	Decodes(r schema.GroupResource) bool
	// Late is called for each write that a closed journal refuses.
	Late(err *ledger.LateWriteError)
}

// ReconcileID returns an Origin's Run and Delivery with a hyphen between them, or "" if both are
// zero.
func ReconcileID(run string, delivery uint64) string {
	if run == "" && delivery == 0 {
		return ""
	}
	return run + "-" + strconv.FormatUint(delivery, 10)
}

const (
	maxReads  = 100
	maxWrites = 10_000
)

// Journal holds the requests of one Reconcile in the order of their starts. It is safe for
// concurrent use. It still records answers that come after the Reconcile.
type Journal struct {
	origin Origin
	wrote  atomic.Bool

	mu            sync.Mutex // guards the fields below, and the entries
	first, last   *Entry
	reads, writes int32 // a deletecollection also counts each object

	lostReads, lostWrites int32

	begun int

	closed bool // no write may begin
}

// New returns an empty journal.
func New(o Origin) *Journal { return &Journal{origin: o} }

// Origin returns New's argument.
func (j *Journal) Origin() Origin { return j.origin }

// Wrote reports whether a request may have written something. It takes no lock.
func (j *Journal) Wrote() bool { return j.wrote.Load() }

// Writes returns the writes so far, including those in flight or with a lost answer. You own the
// slice.
func (j *Journal) Writes() []ledger.Write {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []ledger.Write
	for e := j.first; e != nil; e = e.newer {
		if e.write.Effect != "" {
			all = append(all, e.write)
		}
		all = append(all, e.items...)
	}
	return all
}

// Requests returns the requests so far, within the limits. You own the slice.
func (j *Journal) Requests() []ledger.Request {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := make([]ledger.Request, 0, j.reads+j.writes)
	for e := j.first; e != nil; e = e.newer {
		all = append(all, e.write.Request)
	}
	return all
}

// LeftOut returns the numbers of reads and possible writes beyond the limits. A deletecollection
// counts each object.
func (j *Journal) LeftOut() (reads, writes int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return int(j.lostReads), int(j.lostWrites)
}

// Begun returns the number of requests so far, with those beyond the limits.
func (j *Journal) Begun() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.begun
}

// Close makes later writes fail with a *[ledger.LateWriteError]. Reads, dry runs, access reviews
// and requests in flight go on.
func (j *Journal) Close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
}

// With returns a context that records its requests in j.
func With(ctx context.Context, j *Journal) context.Context {
	return context.WithValue(ctx, contextkey.Ledger{}, j)
}

// FromContext returns the context's journal, or nil.
func FromContext(ctx context.Context) *Journal {
	j, _ := ctx.Value(contextkey.Ledger{}).(*Journal)
	return j
}

// Entry is one request in a [Journal], which the transport updates. After Begin, Update and
// Collected are safe for concurrent use.
type Entry struct {
	of    *Journal
	write ledger.Write   // guarded by of.mu, as are the fields below
	items []ledger.Write // of a deletecollection

	older, newer *Entry
}

// Begin records a request in the empty e. After an error, a *[ledger.LateWriteError], do not send
// the request.
func (j *Journal) Begin(e *Entry, r ledger.Request) error {
	e.of, e.write.Request = j, r
	if j.enter(e) {
		return nil
	}
	o := &j.origin
	err := &ledger.LateWriteError{Controller: o.Controller, Key: o.Key, ReconcileID: ReconcileID(o.Run, o.Delivery), Request: r}
	if o.Owner != nil {
		o.Owner.Late(err)
	}
	return err
}

// Request returns the request. Do not change it. Update may change Name, Took, Status and Err.
func (e *Entry) Request() *ledger.Request { return &e.write.Request }

func (j *Journal) enter(e *Entry) (admitted bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed && e.write.Stores() {
		return false
	}
	j.begun++
	mutates := e.write.Mutates()
	if mutates && !e.write.DryRun {
		e.write.Effect, e.write.Unknown = ledger.Pending, "there is no answer yet"
		j.wrote.Store(true)
	}
	switch {
	case mutates && j.writes < maxWrites:
		j.writes++
	case mutates:
		j.lostWrites++
		return true
	case j.reads < maxReads:
		j.reads++
	default:
		j.lostReads++
		return true
	}
	if e.older = j.last; e.older != nil {
		e.older.newer = e
	} else {
		j.first = e
	}
	j.last = e
	return true
}

// Update calls f under the journal's lock to change the entry. Effect "" means that nothing was
// written. If another write in the journal made the same version, Stored becomes Unchanged.
func (e *Entry) Update(f func(w *ledger.Write)) {
	j := e.of
	j.mu.Lock()
	defer j.mu.Unlock()
	before := e.write.Effect
	f(&e.write)
	if e.write.Effect == ledger.Stored && before != ledger.Stored && e.write.Verb != "create" && j.madeLocked(&e.write) {
		e.write.Effect = ledger.Unchanged
	}
}

// Collected records the objects that a deletecollection listed, as many as fit into the journal,
// and returns these.
func (e *Entry) Collected(items []ledger.Write) []ledger.Write {
	j := e.of
	j.mu.Lock()
	defer j.mu.Unlock()
	if free := int(maxWrites - j.writes); len(items) > free {
		j.lostWrites += int32(len(items) - free) //nolint:gosec // at most what 1 MiB can hold
		items = items[:free]
	}
	j.writes += int32(len(items))
	e.items = items
	return items
}

func (j *Journal) madeLocked(w *ledger.Write) bool {
	for e, n := j.last, 0; e != nil && n < 64; e, n = e.older, n+1 {
		o := &e.write
		if o != w && o.Effect != "" && o.UID == w.UID && o.ResourceVersion == w.ResourceVersion && o.Resource == w.Resource && o.Group == w.Group {
			return true
		}
	}
	return false
}
