// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Lead lets the controller act for one term: workers take keys until take or work is done, and Reconciles run on work, which
// should outlive take. It waits for Synced first. It returns nil when all workers have returned: a Reconcile that does not
// heed the end of work keeps Lead from returning. It may be called again for the next term, while Warm runs.
func (c *Controller[K]) Lead(take, work context.Context) error {
	select {
	case <-c.synced:
	case <-take.Done():
		return nil
	}
	log := c.logger(work)
	work = c.declared.Context(context.WithValue(work, staleKey{}, c.stale))
	var workers sync.WaitGroup
	for range c.o.Workers {
		startWorker(&workers, func() bool { return c.processNextItem(take, work, log) })
	}
	workers.Wait()
	return nil
}

// startWorker starts a goroutine that calls next until it returns false. A Reconcile that ends the goroutine takes the worker
// with it; then another takes its place.
func startWorker(workers *sync.WaitGroup, next func() bool) {
	workers.Go(func() {
		exited := true
		defer func() {
			if exited {
				startWorker(workers, next)
			}
		}()
		for next() {
		}
		exited = false
	})
}

// logger is the base of every Reconcile's logger.
func (c *Controller[K]) logger(ctx context.Context) *slog.Logger {
	log := c.o.Logger
	if log == nil {
		log = logr.FromContextAsSlogLogger(ctx)
	}
	if log == nil {
		log = slog.Default()
	}
	return log.With("controller", c.name)
}

// processNextItem takes a key, reconciles it and settles it. It returns false when there is nothing more to take.
func (c *Controller[K]) processNextItem(take, work context.Context, log *slog.Logger) bool {
	item, ok := c.queue.Get(take)
	if !ok {
		return false
	}
	if work.Err() != nil { // a lost term ends both contexts, not necessarily take first
		_ = item.Release() // cannot fail: it was taken just now
		return false
	}
	past := c.journal.take(item.Key())
	var doubts error
	if past != nil {
		var parked bool
		if parked, doubts = c.putOff(item, past); parked {
			return true
		}
	}
	ctx, r := c.begin(work, item, log)
	if past != nil {
		r.givenUp = past.givenUp
	}
	if doubts != nil {
		ctx = context.WithValue(ctx, doubtsKey{}, doubts)
	}
	if c.o.Hooks.Reconciling != nil {
		c.o.Hooks.Reconciling(c.name)
	}
	started := time.Now()
	end := ending{outcome: hook.Panicked, err: errExited} // unless reconcile returns
	defer func() {                                        // so that the key is settled even if it does not
		c.settle(ctx, r, end)
		if c.o.Hooks.Reconciled != nil {
			c.o.Hooks.Reconciled(hook.Reconcile{Controller: c.name, Took: time.Since(started), Outcome: end.outcome, Err: end.err})
		}
	}()
	end = c.reconcile(ctx, r)
	return true
}

// running is one Reconcile.
type running[K comparable] struct {
	itemLog[K]

	ledger  *client.Ledger
	givenUp []client.Write // what the key has written and was not shown in time
}

// begin makes what a Reconcile is given.
func (c *Controller[K]) begin(work context.Context, item workqueue.Item[K], log *slog.Logger) (context.Context, *running[K]) {
	r := &running[K]{itemLog: itemLog[K]{base: log.Handler(), item: item, run: c.run}}
	r.Logger = *slog.New(&r.itemLog)
	r.ledger = client.NewLedger(client.Origin{Controller: c.name, Key: r, Run: c.run, Delivery: item.Delivery(), Decode: c.selects})
	return logr.NewContextWithSlogLogger(client.WithLedger(work, r.ledger), &r.Logger), r
}

// String returns the key.
func (r *running[K]) String() string { return fmt.Sprint(r.item.Key()) }

// reconcile calls Reconcile, and says how it ended. A panic is an error with its stack (C5).
func (c *Controller[K]) reconcile(ctx context.Context, r *running[K]) (end ending) {
	defer func() {
		if p := recover(); p != nil {
			end = ending{outcome: hook.Panicked, err: &PanicError{Value: p, Stack: debug.Stack()}}
		}
	}()
	result, err := c.reconciler.Reconcile(ctx, r.item.Key())
	return judge(ctx, result, err)
}
