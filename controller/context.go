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

	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

type lead[K comparable] struct {
	controller *Controller[K]
	log        slog.Handler
	origin     ledger.Origin  // template of each ledger, without key and delivery
	over       *ledger.Ledger // marks a returned Reconcile without requests
}

// running is one Reconcile and its context. It creates the ledger for the first request, because
// most Reconciles make none.
type running[K comparable] struct {
	context.Context //nolint:containedctx // it is one

	cancel context.CancelCauseFunc
	of     *lead[K]
	item   workqueue.Item[K]
	past   *past         // of the key, or nil
	since  time.Duration // start, on the controller's clock
	log    *slog.Logger
	lines  itemLog[K] // the handler of log
	ledger atomic.Pointer[ledger.Ledger]
}

func (r *running[K]) Value(key any) any {
	switch key {
	case ledger.ContextKey{}:
		return r.requests()
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

// begin returns a Reconcile that began at since, with its logger in its context.
func (t *lead[K]) begin(work context.Context, item workqueue.Item[K], r *record[K], since time.Duration) *running[K] {
	base := t.log
	if r.level != nil {
		base = leveled{base, *r.level}
	}
	c := t.controller
	now := &running[K]{of: t, item: item, past: r.past, since: since, lines: itemLog[K]{base: base, item: item, run: c.run}}
	now.log = slog.New(&now.lines)
	now.Context, now.cancel = c.o.cancellable(logr.NewContextWithSlogLogger(work, now.log))
	return now
}

// requests returns the Reconcile's ledger. It is closed after the Reconcile has returned.
func (r *running[K]) requests() *ledger.Ledger {
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

func (r *running[K]) newLedger() *ledger.Ledger {
	o := r.of.origin
	o.Key, o.Delivery = r.item.Key(), r.item.Delivery()
	return ledger.New(o)
}

// end closes the ledger, because no later Reconcile would wait for writes that begin now. For a
// Reconcile without a ledger it costs one atomic operation.
func (r *running[K]) end() {
	if !r.ledger.CompareAndSwap(nil, r.of.over) {
		r.ledger.Load().Close()
	}
}

// wrote returns the ledger if it may contain a write, else nil.
func (r *running[K]) wrote() *ledger.Ledger {
	if l := r.ledger.Load(); l != nil && l.Wrote() {
		return l
	}
	return nil
}

// String names the Reconcile, as the contexts of package context do.
func (r *running[K]) String() string { return fmt.Sprintf("reconcile of %v", r.item.Key()) }

// cancellable returns the context of a Reconcile and its cancel function, a no-op if nothing can
// cancel it.
func (o *Options) cancellable(work context.Context) (context.Context, context.CancelCauseFunc) {
	if o.Deadline == 0 && o.Interrupt == 0 {
		return work, func(error) {}
	}
	ctx, cancel := context.WithCancelCause(work)
	if o.Deadline == 0 {
		return ctx, cancel
	}
	return &limited{Context: ctx, deadline: time.Now().Add(o.Deadline)}, cancel
}

// limited is a context with a deadline that lead.watch enforces, after taking the stack.
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
