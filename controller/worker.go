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
	"time"

	"github.com/go-logr/logr"

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

// ending is how one Reconcile ended.
type ending struct {
	result  Result
	outcome hook.Outcome
	err     error
}

var errExited = errors.New("the reconciler ended its goroutine, with runtime.Goexit or testing.T.FailNow; return an error instead")

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
	log = newItemLog(log.Handler(), item)
	if c.o.Hooks.Reconciling != nil {
		c.o.Hooks.Reconciling(c.name)
	}
	started := time.Now()
	end := ending{outcome: hook.Panicked, err: errExited} // unless reconcile returns
	defer func() {                                        // so that the key is settled even if it does not
		c.settle(log, item, end)
		if c.o.Hooks.Reconciled != nil {
			c.o.Hooks.Reconciled(hook.Reconcile{Controller: c.name, Took: time.Since(started), Outcome: end.outcome, Err: end.err})
		}
	}()
	end = c.reconcile(logr.NewContextWithSlogLogger(work, log), item.Key())
	return true
}

// reconcile calls Reconcile, and says how it ended. A panic is an error with its stack (C5).
func (c *Controller[K]) reconcile(ctx context.Context, key K) (end ending) {
	defer func() {
		if p := recover(); p != nil {
			end = ending{outcome: hook.Panicked, err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	result, err := c.reconciler.Reconcile(ctx, key)
	if err == nil && result.RequeueAfter < 0 {
		err = fmt.Errorf("the reconciler returned a negative RequeueAfter, %s", result.RequeueAfter)
	}
	end = ending{result, hook.Failed, err}
	switch {
	case err == nil && result.RequeueAfter > 0:
		end.outcome = hook.RequeuedAfter
	case err == nil:
		end.outcome = hook.Succeeded
	case ctx.Err() != nil: // C8: whatever the error says, it may be because of that
		end.outcome = hook.Interrupted
	case IsTerminal(err):
		end.outcome = hook.FailedTerminally
	}
	return end
}

// settle gives the key back to the queue, in exactly one way.
func (c *Controller[K]) settle(log *slog.Logger, item workqueue.Item[K], end ending) {
	var lost error // why the item could not be settled
	switch end.outcome {
	case hook.Succeeded:
		lost = item.Done()
	case hook.RequeuedAfter:
		lost = item.After(end.result.RequeueAfter)
	case hook.FailedTerminally:
		log.Error("reconcile failed for good", "err", end.err)
		lost = item.Done()
	case hook.Interrupted:
		log.Info("reconcile interrupted", "err", end.err)
		lost = item.Release()
	default:
		var delay time.Duration
		delay, lost = item.RetryNotBefore(end.err, end.result.RequeueAfter)
		log.Error("reconcile failed", "err", end.err, "retryAfter", delay)
	}
	if lost != nil {
		log.Error("the key could not be settled", "err", lost)
	}
}
