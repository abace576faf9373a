// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/term"
)

// Lead lets the controller act for one term: workers take keys until take or work is done, and Reconciles run on work, which
// should outlive take. It waits for Synced first, and until what was written under the term before is shown, if there is one and it
// was released (L9). It returns nil when all workers have returned: a Reconcile that does not
// heed the end of work keeps Lead from returning. It may be called again for the next term, while Warm runs.
func (c *Controller[K]) Lead(take, work context.Context) error {
	select {
	case <-c.synced:
	case <-take.Done():
		return nil
	}
	missing, goOn := c.consistency.takeOver(take, work)
	if goOn {
		goOn = c.consistency.awaitFormer(take, work)
	}
	if !goOn {
		return nil
	}
	t, work := c.newLead(work, missing)
	return t.employ(take, work, func(take context.Context, s *slot[K]) bool { return t.processNextItem(take, work, s) })
}

// lead is one call of Lead.
type lead[K comparable] struct {
	*shared

	controller *Controller[K]
	expired    *fewLines
}

// newLead returns a call of Lead, and the context for its Reconciles. missing returns what the caches
// do not show of the previous term.
func (c *Controller[K]) newLead(work context.Context, missing func() error) (*lead[K], context.Context) {
	t := &lead[K]{controller: c, expired: newFewLines(), shared: &shared{
		log: c.logger(work).Handler(), run: c.run, deadline: c.o.Deadline, cancels: c.o.Deadline > 0 || c.o.Interrupt > 0, over: &ledger.Ledger{},
	}}
	t.origin = ledger.Origin{Controller: c.name, Run: c.run, Decode: c.inputs.declared.Selects, Late: t.tellLate}
	if leading := term.Of(work); leading != nil {
		t.origin.Term = leading.Token().String()
	}
	work = context.WithValue(work, staleKey{}, func() error { return errors.Join(missing(), c.consistency.formerMissing(), c.inputs.stale()) })
	return t, c.inputs.declared.Context(work)
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

// processNextItem takes a key, reconciles it and settles it. It returns false when there is nothing more to take.
func (t *lead[K]) processNextItem(take, work context.Context, s *slot[K]) bool {
	c := t.controller
	item, ok := c.queue.Get(take)
	if !ok {
		return false
	}
	if work.Err() != nil { // a lost term ends both contexts, not necessarily take first
		_ = item.Release() // cannot fail: it was taken just now
		return false
	}
	of := c.records.take(item.Key())
	past := of.past
	by, why := c.spins.causeOf(item, &of)
	if c.spins.slowDown(item, &of, by) || past != nil && c.consistency.putOff(work, item, past) {
		return true
	}
	if c.o.Hooks.Reconciling != nil {
		c.o.Hooks.Reconciling(c.name)
	}
	r := newRunning(work, t.shared, item, &of, c.now())
	s.run.Store(r)
	c.spins.begin(item.Key(), r.log, by, why)
	if past != nil && past.expired {
		t.warn(r)
	}
	var end ending
	returned := false
	defer func() { //nolint:contextcheck // r is the context
		if !returned {
			end = aborted(fmt.Errorf("the reconciler %w", run.ErrExited)) // the key is settled even so
		}
		r.end()
		s.end(c.now())
		c.spins.end(item.Key(), end.outcome, end.result.RequeueAfter, r.wrote() != nil)
		t.settle(r, end)
		r.cancel(nil)
		if c.o.Hooks.Reconciled != nil {
			c.o.Hooks.Reconciled(hook.Reconcile{
				Controller: c.name, Took: c.now() - r.since, Outcome: end.outcome, Err: end.err,
				TimedOut: c.o.Deadline > 0 && errors.Is(context.Cause(r), errDeadline),
			})
		}
	}()
	end = t.reconcile(r) //nolint:contextcheck // r is the context
	returned = true
	return true
}

// warn has the log say that a Reconcile begins although it may not see what its key has written.
func (t *lead[K]) warn(r *running[K]) {
	if args, ok := t.expired.next("bound", t.controller.o.ReadYourWrites.String(), "err", r.past.doubts); ok {
		r.log.Warn("reconciled although its own writes are not shown", args...)
	}
}

// reconcile calls Reconcile, and says how it ended. A panic is an error with its stack (C5).
func (t *lead[K]) reconcile(r *running[K]) (end ending) {
	defer func() {
		if p := recover(); p != nil {
			end = aborted(&PanicError{Value: p, Stack: debug.Stack()})
		}
	}()
	result, err := t.controller.reconciler.Reconcile(r, r.item.Key())
	return judge(r, result, err)
}

var errLeads = errors.New("it leads already; end that term first")

// employ has workers call next with their context and slot until it returns false, which it does when there is nothing more to take
// in this term. It returns when all have returned.
func (t *lead[K]) employ(take, work context.Context, next func(take context.Context, s *slot[K]) bool) error {
	c := t.controller
	var all, watching sync.WaitGroup
	hire := func() *slot[K] {
		ctx, retire := context.WithCancel(take)
		s := &slot[K]{retire: retire}
		all.Go(func() { c.workers.work(s, func() bool { return next(ctx, s) }) })
		return s
	}
	if !c.workers.open(hire, c.now(), t.origin.Term) {
		return errLeads
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(take))
	watching.Go(func() { c.watchdog.watch(ctx, slog.New(t.log)) })
	watching.Go(func() { c.watchdog.watchEnd(ctx, work, slog.New(t.log)) })
	all.Wait()
	stop()
	watching.Wait()
	c.workers.close()
	return nil
}
