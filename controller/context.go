// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/internal/contextkey"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/term"
	"github.com/setpoint-dev/setpoint/workqueue"
)

type lead[K comparable] struct {
	controller *Controller[K]
	log        slog.Handler
	origin     journal.Origin // template, without key and delivery
	fights     chan contested[K]
	over       *journal.Journal // marks a returned Reconcile without requests
}

// running is one Reconcile and its context. Most make no request, so the first one creates the
// ledger.
type running[K comparable] struct {
	context.Context //nolint:containedctx // it is one

	cancel context.CancelCauseFunc
	of     *lead[K]
	item   workqueue.Item[K]
	past   *lastRun      // or nil
	by     author        // who made the key due since then
	since  time.Duration // start, on the controller's clock
	log    slog.Logger
	lines  logging.Lazy // the handler of log
	ledger atomic.Pointer[journal.Journal]
	doubts doubts
	reads  reads
	traces []*trace
	notes  notes

	spins bool   // soon, or already: the answers to its writes are compared
	fight *fight // or nil
	round *round // or nil
}

func (r *running[K]) Value(key any) any {
	switch key {
	case contextkey.Ledger{}:
		return r.requests()
	case contextkey.Reads{}:
		return &r.reads
	case contextkey.Notes{}:
		return &r.notes
	case doubtsKey{}:
		if r.past == nil {
			return nil
		}
		return r.past.doubts
	case infoKey{}:
		return r
	}
	return r.Context.Value(key)
}

func (t *lead[K]) begin(work context.Context, item workqueue.Item[K], r *record[K], since time.Duration) *running[K] {
	base := t.log
	if r.level != nil {
		base = leveled{base, *r.level}
	}
	c := t.controller
	now := &running[K]{of: t, item: item, past: r.past, by: c.authorOfAll(item, r.past), since: since}
	now.lines = logging.Lazy{Base: base, Of: now}
	now.log = *slog.New(&now.lines)
	if now.traces = c.traces.of(item.Key()); now.traces != nil {
		now.reads.traced = &keptReads{}
	}
	now.Context, now.cancel = c.o.cancellable(logr.NewContextWithSlogLogger(work, &now.log))
	return now
}

// served is an owned slot whose keys this controller reconciles, as the context of their
// Reconciles.
type served struct {
	context.Context //nolint:containedctx // it is one
	term.OwnedSlot

	delivered atomic.Bool // the objects that came before
}

// requests returns the Reconcile's ledger, closed after the Reconcile has returned.
func (r *running[K]) requests() *journal.Journal {
	l := r.ledger.Load()
	if l == nil {
		r.ledger.CompareAndSwap(nil, r.newLedger())
		l = r.ledger.Load()
	}
	if l == r.of.over {
		l = r.newLedger()
		l.Close()
	}
	return l
}

func (r *running[K]) newLedger() *journal.Journal {
	o := r.of.origin
	o.Key, o.Delivery = r.item.Key(), r.item.Delivery()
	if r.spins || r.fight.suspicious() || r.traces != nil {
		o.Owner = suspicious{o.Owner}
	}
	return journal.New(o)
}

// suspicious is an Owner that gets all answers.
type suspicious struct{ journal.Owner }

// Decodes implements journal.Owner.
func (suspicious) Decodes(schema.GroupResource) bool { return true }

// end closes the ledger, because no later Reconcile would wait for writes that begin now.
func (r *running[K]) end() {
	if !r.ledger.CompareAndSwap(nil, r.of.over) {
		r.ledger.Load().Close()
	}
	r.doubts.end()
}

func (r *running[K]) wrote() *journal.Journal {
	if l := r.ledger.Load(); l != nil && l.Wrote() {
		return l
	}
	return nil
}

// begun returns how many requests the Reconcile has made.
func (r *running[K]) begun() int {
	if l := r.ledger.Load(); l != nil {
		return l.Begun()
	}
	return 0
}

// String names the Reconcile in the text of derived contexts.
func (r *running[K]) String() string { return fmt.Sprintf("Reconcile of %v", r.item.Key()) }

func (o *Options) cancellable(work context.Context) (context.Context, context.CancelCauseFunc) {
	if o.Deadline == 0 && o.MaxInterrupts == 0 {
		return work, func(error) {}
	}
	ctx, cancel := context.WithCancelCause(work)
	if o.Deadline == 0 {
		return ctx, cancel
	}
	return &limited{Context: ctx, deadline: time.Now().Add(o.Deadline)}, cancel
}

// limited has a deadline that lead.watch enforces, after taking the stack.
type limited struct {
	context.Context //nolint:containedctx // it is one

	deadline time.Time
}

func (l *limited) Deadline() (time.Time, bool) {
	at, ok := l.Context.Deadline()
	if ok && at.Before(l.deadline) {
		return at, ok
	}
	return l.deadline, true
}
