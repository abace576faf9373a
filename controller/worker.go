// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
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
	missing, goOn := c.takeOver(take, work)
	if goOn {
		goOn = c.awaitFormer(take, work)
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
func (t *term[K]) processNextItem(take, work context.Context, s *slot[K]) bool {
	c := t.controller
	item, ok := c.get(take, s)
	if !ok {
		return false
	}
	if work.Err() != nil { // a lost term ends both contexts, not necessarily take first
		_ = item.Release() // cannot fail: it was taken just now
		return false
	}
	past := c.journal.take(item.Key())
	by, why := c.causeOf(item, past)
	if c.slowDown(item, past, by) || past != nil && c.putOff(work, item, past) {
		s.run.Store(nil) // if there was one before
		return true
	}
	if c.o.Hooks.Reconciling != nil {
		c.o.Hooks.Reconciling(c.name)
	}
	r := &running[K]{Context: c.cancellable(work), term: t, item: item, past: past, since: c.clock.lately(&s.watch)}
	s.begin(r)
	c.clock.rouse()
	c.noteCause(r, by, why)
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
		c.noteEnd(r, &end)
		c.settle(r, end)
		r.cancel(nil)
		if c.o.Hooks.Reconciled != nil {
			c.o.Hooks.Reconciled(hook.Reconcile{
				Controller: c.name, Took: c.clock.now() - r.since, Outcome: end.outcome, Err: end.err,
				TimedOut: c.o.Deadline > 0 && errors.Is(context.Cause(r), errDeadline),
			})
		}
	}()
	end = c.reconcile(r) //nolint:contextcheck // r is the context
	returned = true
	return true
}

// warn has the log say that a Reconcile begins although it may not see what its key has written.
func (t *term[K]) warn(r *running[K]) {
	if args, ok := t.expired.next("bound", t.controller.o.ReadYourWrites.String(), "err", r.past.doubts); ok {
		r.logger().Warn("reconciled although its own writes are not shown", args...)
	}
}

// reconcile calls Reconcile, and says how it ended. A panic is an error with its stack (C5).
func (c *Controller[K]) reconcile(r *running[K]) (end ending) {
	defer func() {
		if p := recover(); p != nil {
			end = aborted(&PanicError{Value: p, Stack: debug.Stack()})
		}
	}()
	result, err := c.reconciler.Reconcile(r, r.item.Key())
	return judge(r, result, err)
}
