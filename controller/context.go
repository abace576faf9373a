// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/term"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// running is one Reconcile, and the context that it is given. Most Reconciles read the cache, find
// nothing to do and return, so the ledger is made when the first request is.
type running[K comparable] struct {
	context.Context //nolint:containedctx // it is one

	cancel context.CancelCauseFunc
	term   *lead[K]
	item   workqueue.Item[K]
	past   *past         // of the key, if it has one
	since  time.Duration // when it began, by the controller's clock
	log    *slog.Logger
	ledger atomic.Pointer[ledger.Ledger]
}

// lead is what all Reconciles of a call of Lead have in common.
type lead[K comparable] struct {
	controller *Controller[K]
	log        slog.Handler
	name       string // of the term of leadership
	expired    *fewLines
	late       func(*ledger.LateWriteError)
	over       *ledger.Ledger // of each Reconcile that has returned and made no request: see running.end
}

// newTerm returns a term, and the context for its Reconciles. missing says what it should show and does not.
func (c *Controller[K]) newTerm(work context.Context, missing func() error) (*lead[K], context.Context) {
	t := &lead[K]{controller: c, log: c.logger(work).Handler(), expired: newFewLines(), over: &ledger.Ledger{}}
	t.late = t.tellLate
	if leading := term.Of(work); leading != nil {
		t.name = leading.String()
	}
	work = context.WithValue(work, staleKey{}, func() error { return errors.Join(missing(), c.consistency.formerMissing(), c.inputs.stale()) })
	return t, c.inputs.declared.Context(work)
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
func (t *lead[K]) newRunning(work context.Context, item workqueue.Item[K], of *record[K]) *running[K] {
	c := t.controller
	base := t.log
	if of.level != nil {
		base = leveled{base, *of.level}
	}
	log := slog.New(&itemLog[K]{base: base, item: item, run: c.run})
	ctx, cancel := t.cancellable(logr.NewContextWithSlogLogger(work, log))
	return &running[K]{Context: ctx, cancel: cancel, term: t, item: item, past: of.past, since: c.now(), log: log}
}

// requests returns the Reconcile's ledger. It is closed once the Reconcile has returned.
func (r *running[K]) requests() *ledger.Ledger {
	l := r.ledger.Load()
	if l == nil {
		r.ledger.CompareAndSwap(nil, r.newLedger())
		l = r.ledger.Load()
	}
	if l == r.term.over {
		l = r.newLedger()
		l.Close()
	}
	return l
}

func (r *running[K]) newLedger() *ledger.Ledger {
	c := r.term.controller
	return ledger.New(ledger.Origin{
		Controller: c.name, Key: r.item.Key(), Run: c.run, Delivery: r.item.Delivery(), Term: r.term.name,
		Decode: c.inputs.declared.Selects, Late: r.term.late,
	})
}

// end refuses the writes that begin from now on: those that have begun are accounted for when the
// key is settled, others would be waited for by no one (C6). Most Reconciles have no ledger: it
// costs them one atomic operation.
func (r *running[K]) end() {
	if !r.ledger.CompareAndSwap(nil, r.term.over) {
		r.ledger.Load().Close()
	}
}

// tellLate logs a write that was refused because its Reconcile has returned: once for each verb and
// resource.
func (t *lead[K]) tellLate(err *ledger.LateWriteError) {
	w := &err.Request
	if t.controller.told.first("late", w.Verb, w.Group, w.Resource, w.Subresource) {
		slog.New(t.log).Error("a write began after its Reconcile had returned, and was refused",
			"key", fmt.Sprint(err.Key), "reconcileID", err.ReconcileID, "err", err)
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
func (t *lead[K]) cancellable(work context.Context) (context.Context, context.CancelCauseFunc) {
	c := t.controller
	if c.o.Deadline == 0 && c.o.Interrupt == 0 {
		return work, func(error) {}
	}
	ctx, cancel := context.WithCancelCause(work)
	if c.o.Deadline == 0 {
		return ctx, cancel
	}
	return &limited{Context: ctx, deadline: time.Now().Add(c.o.Deadline)}, cancel
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
