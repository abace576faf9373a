// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"sync"
)

// Origin is on whose behalf requests are made.
type Origin struct {
	// Controller is the controller's name.
	Controller string
	// Key is what is reconciled, in the controller's own words.
	Key string
	// ReconcileID tells one Reconcile of the key from another.
	ReconcileID string
	// Term names the term of leadership under which it runs, empty for none.
	Term string
}

// How much a ledger keeps. Writes are needed one by one, to wait for them; reads only tell what has happened.
const (
	maxReads  = 100
	maxWrites = 10_000
)

// Ledger holds the requests that were made on behalf of one Reconcile, in the order in which they began. It is safe for
// concurrent use, also after the Reconcile has ended: a goroutine that outlives it still writes here. See the package's
// documentation for what a ledger knows and what it cannot know.
type Ledger struct {
	origin Origin

	mu      sync.Mutex // guards what follows, and what the records say
	records []*record
	first   [4]*record // room for the first ones
	fresh   []record   // made together, because allocations are what a request costs most
	reads   int        // kept
	writes  int        // kept: requests that may be writes, and what they have written if that is more than one object

	lostReads, lostWrites int
}

// NewLedger makes an empty ledger.
func NewLedger(o Origin) *Ledger {
	l := &Ledger{origin: o}
	l.records = l.first[:0]
	return l
}

type ledgerKey struct{}

// WithLedger returns a context whose requests are entered in l, if the client that makes them was built from the
// configuration of a [Client]. A nil l leaves them out.
func WithLedger(ctx context.Context, l *Ledger) context.Context {
	return context.WithValue(ctx, ledgerKey{}, l)
}

// Origin returns what NewLedger was given.
func (l *Ledger) Origin() Origin { return l.origin }

// Writes returns what was written so far, or may have been, requests under way included. The slice is the caller's.
func (l *Ledger) Writes() []Write {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Write
	for _, r := range l.records {
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
	all := make([]Request, len(l.records))
	for i, r := range l.records {
		all[i] = r.Request
	}
	return all
}

// LeftOut returns how many reads, and how many requests that may have been writes, are missing from Requests and Writes
// because there were too many. A deletecollection counts for each object.
func (l *Ledger) LeftOut() (reads, writes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lostReads, l.lostWrites
}

// enter makes a record of a request that begins.
func (l *Ledger) enter(r Request) *record {
	mutates := r.mutates()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.fresh) == 0 {
		l.fresh = make([]record, len(l.first))
	}
	rec := &l.fresh[0]
	l.fresh = l.fresh[1:]
	rec.Request = r
	if mutates && !r.DryRun {
		rec.write, rec.Effect, rec.Unknown = true, Pending, "there is no answer yet"
	}
	switch {
	case mutates && l.writes < maxWrites:
		l.writes++
	case mutates:
		l.lostWrites++
		return rec
	case l.reads < maxReads:
		l.reads++
	default:
		l.lostReads++
		return rec
	}
	l.records = append(l.records, rec)
	return rec
}

// record is one request in a ledger, whose mutex guards it.
type record struct {
	Write

	write bool    // it is a write, or may be
	items []Write // of a deletecollection
}

// madeLocked says whether an earlier write in the ledger has made this version of the object. It looks at the newest ones.
func (l *Ledger) madeLocked(w *record) bool {
	for i := len(l.records) - 1; i >= max(0, len(l.records)-64); i-- {
		r := l.records[i]
		if r != w && r.write && r.UID == w.UID && r.ResourceVersion == w.ResourceVersion && r.Resource == w.Resource && r.Group == w.Group {
			return true
		}
	}
	return false
}
