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

// running is one Reconcile, and the context that it is given. Most Reconciles read the cache, find nothing to do and return: so
// the logger and the ledger are made when somebody asks for them, and this is all that is allocated.
type running[K comparable] struct {
	context.Context //nolint:containedctx // it is one

	term   *lead[K]
	item   workqueue.Item[K]
	past   *past         // of the key, if it has one
	since  time.Duration // when it began, by the controller's clock
	log    atomic.Pointer[slog.Logger]
	ledger atomic.Pointer[ledger.Ledger]
}

// lead is what all Reconciles of a call of Lead have in common.
type lead[K comparable] struct {
	controller *Controller[K]
	log        slog.Handler
	logKey     any    // under which a context carries a logger
	name       string // of the term of leadership
	expired    *fewLines
	late       func(*ledger.LateWriteError)
	over       *ledger.Ledger // of each Reconcile that has returned and made no request: see running.end
}

// newTerm returns a term, and the context for its Reconciles. missing says what it should show and does not.
func (c *Controller[K]) newTerm(work context.Context, missing func() error) (*lead[K], context.Context) {
	t := &lead[K]{controller: c, log: c.logger(work).Handler(), logKey: logKey(), expired: newFewLines(), over: &ledger.Ledger{}}
	t.late = t.tellLate
	if leading := term.Of(work); leading != nil {
		t.name = leading.String()
	}
	work = context.WithValue(work, staleKey{}, func() error { return errors.Join(missing(), c.formerMissing(), c.stale()) })
	return t, c.declared.Context(work)
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
	case r.term.logKey:
		return r.logger()
	}
	return r.Context.Value(key)
}

// logger returns the Reconcile's logger.
func (r *running[K]) logger() *slog.Logger {
	if log := r.log.Load(); log != nil {
		return log
	}
	r.log.CompareAndSwap(nil, slog.New(&itemLog[K]{base: r.term.controller.levels.handler(r.term.log, r.item.Key()), item: r.item, run: r.term.controller.run}))
	return r.log.Load()
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
		Decode: c.declared.Selects, Late: r.term.late,
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

// cancellable returns the context of a Reconcile, which running.cancel can end if that is ever wanted.
func (c *Controller[K]) cancellable(work context.Context) context.Context {
	if c.o.Deadline == 0 && c.o.Interrupt == 0 {
		return work
	}
	ctx, cancel := context.WithCancelCause(work)
	limited := &cancellable{Context: ctx, cancel: cancel}
	if c.o.Deadline > 0 {
		limited.deadline = time.Now().Add(c.o.Deadline)
	}
	return limited
}

// cancellable is a context with what ends it.
type cancellable struct {
	context.Context //nolint:containedctx // it is one

	cancel   context.CancelCauseFunc
	deadline time.Time // when the watchdog will
}

// Deadline implements context.Context.
func (c *cancellable) Deadline() (time.Time, bool) {
	at, ok := c.Context.Deadline()
	if c.deadline.IsZero() || ok && at.Before(c.deadline) {
		return at, ok
	}
	return c.deadline, true
}

// cancel ends the context of the Reconcile.
func (r *running[K]) cancel(cause error) {
	if c, ok := r.Context.(*cancellable); ok {
		c.cancel(cause)
	}
}

// logKey finds out under which key logr looks for a logger. Its type is not exported, so that only logr can put one into a
// context; but only at the price of an allocation and of a logger that most Reconciles never use.
func logKey() any {
	var asked spy
	logr.FromContextAsSlogLogger(&asked)
	return asked.key
}

// spy is a context that notes what it is asked for.
type spy struct {
	context.Context //nolint:containedctx // it is one

	key any
}

// Value implements context.Context.
func (s *spy) Value(key any) any {
	s.key = key
	return nil
}
