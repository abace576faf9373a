// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"

	"github.com/setpoint-dev/setpoint/hook"
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
	t, work := c.newTerm(work, missing)
	return t.employ(take, work, func(take context.Context, s *slot[K]) bool { return t.processNextItem(take, work, s) })
}

// logger is the base of every Reconcile's logger.
func (c *Controller[K]) logger(ctx context.Context) *slog.Logger {
	log := c.o.Logger
	if log == nil {
		log = Logger(ctx)
	}
	return log.With("controller", c.name)
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
	r := t.newRunning(work, item, &of)
	s.run.Store(r)
	c.spins.begin(r, by, why)
	if past != nil && past.expired {
		t.warn(r)
	}
	var end ending
	returned := false
	defer func() { //nolint:contextcheck // r is the context
		if !returned {
			end = aborted(errExited) // the key is settled even so
		}
		r.end()
		s.end(c.now())
		c.spins.end(r, &end)
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
