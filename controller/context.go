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

// running is one Reconcile, and the context that it is given. Most Reconciles read the cache, find
// nothing to do and return, so the ledger is made when the first request is.
type running[K comparable] struct {
	context.Context //nolint:containedctx // it is one

	cancel context.CancelCauseFunc
	of     *shared
	item   workqueue.Item[K]
	past   *past         // of the key, if it has one
	since  time.Duration // when it began, by the controller's clock
	log    *slog.Logger
	lines  itemLog[K] // the handler of log
	ledger atomic.Pointer[ledger.Ledger]
}

// shared is what all Reconciles of a call of Lead have in common.
type shared struct {
	log      slog.Handler
	run      string         // begins each reconcile ID
	origin   ledger.Origin  // of each ledger, but for key and delivery
	deadline time.Duration  // Options.Deadline
	cancels  bool           // there is a deadline, or Options.Interrupt
	over     *ledger.Ledger // of each Reconcile that has returned and made no request: see running.end
}

// Value implements context.Context.
func (r *running[K]) Value(key any) any {
	switch key {
	case ledger.ContextKey{}:
		return r.requests()
	case doubtsKey{}:
		if r.past == nil {
			return nil
		}
		return r.past.doubts
	}
	return r.Context.Value(key)
}

// newRunning returns a Reconcile that begins now. Its context carries its logger.
func newRunning[K comparable](work context.Context, of *shared, item workqueue.Item[K], r *record[K], since time.Duration) *running[K] {
	base := of.log
	if r.level != nil {
		base = leveled{base, *r.level}
	}
	now := &running[K]{of: of, item: item, past: r.past, since: since, lines: itemLog[K]{base: base, item: item, run: of.run}}
	now.log = slog.New(&now.lines)
	now.Context, now.cancel = of.cancellable(logr.NewContextWithSlogLogger(work, now.log))
	return now
}

// requests returns the Reconcile's ledger. It is closed once the Reconcile has returned.
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

// end refuses the writes that begin from now on: those that have begun are accounted for when the
// key is settled, others would be waited for by no one (C6). Most Reconciles have no ledger: it
// costs them one atomic operation.
func (r *running[K]) end() {
	if !r.ledger.CompareAndSwap(nil, r.of.over) {
		r.ledger.Load().Close()
	}
}

// wrote returns the ledger if it may have a write in it, else nil.
func (r *running[K]) wrote() *ledger.Ledger {
	if l := r.ledger.Load(); l != nil && l.Wrote() {
		return l
	}
	return nil
}

// String says whose context it is, as package context does for its own.
func (r *running[K]) String() string { return fmt.Sprintf("reconcile of %v", r.item.Key()) }

// cancellable returns the context of a Reconcile, and what ends it: a no-op if nothing ever will.
func (s *shared) cancellable(work context.Context) (context.Context, context.CancelCauseFunc) {
	if !s.cancels {
		return work, func(error) {}
	}
	ctx, cancel := context.WithCancelCause(work)
	if s.deadline == 0 {
		return ctx, cancel
	}
	return &limited{Context: ctx, deadline: time.Now().Add(s.deadline)}, cancel
}

// limited is a context whose deadline the watchdog enforces, after it has taken the stack.
type limited struct {
	context.Context //nolint:containedctx // it is one

	deadline time.Time
}

// Deadline implements context.Context.
func (l *limited) Deadline() (time.Time, bool) {
	at, ok := l.Context.Deadline()
	if ok && at.Before(l.deadline) {
		return at, ok
	}
	return l.deadline, true
}
