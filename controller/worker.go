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

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Lead lets the controller act for one term: workers take keys until take is done, and Reconciles run on work, which must not
// end before take. It waits for Synced first. It returns nil when all workers have returned: a Reconcile that does not heed
// the end of work keeps Lead from returning. It may be called again for the next term, while Warm runs.
func (c *Controller[K]) Lead(take, work context.Context) error {
	select {
	case <-c.synced:
	case <-take.Done():
		return nil
	}
	log := c.logger(work)
	var workers sync.WaitGroup
	for range c.o.Workers {
		workers.Go(func() {
			for c.processNextItem(take, work, log) {
			}
		})
	}
	workers.Wait()
	return nil
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
	if take.Err() != nil {
		return false
	}
	item, ok := c.queue.Get(take)
	if !ok {
		return false
	}
	log = log.With("key", item.Key(), "attempt", item.Attempt())
	if c.o.Hooks.Reconciling != nil {
		c.o.Hooks.Reconciling(c.name)
	}
	started := time.Now()
	result, outcome, err := c.reconcile(logr.NewContextWithSlogLogger(work, log), item.Key())
	if work.Err() != nil && err != nil {
		outcome = hook.Interrupted
	}
	c.settle(log, item, result, outcome, err)
	if c.o.Hooks.Reconciled != nil {
		c.o.Hooks.Reconciled(hook.Reconcile{Controller: c.name, Took: time.Since(started), Outcome: outcome, Err: err})
	}
	return true
}

// reconcile calls Reconcile, and says how it ended. A panic is an error with its stack (C5).
func (c *Controller[K]) reconcile(ctx context.Context, key K) (result Result, outcome hook.Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			result, outcome, err = Result{}, hook.Panicked, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	result, err = c.reconciler.Reconcile(ctx, key)
	switch {
	case err == nil && result.RequeueAfter < 0:
		return result, hook.Failed, fmt.Errorf("the reconciler returned a negative RequeueAfter, %s", result.RequeueAfter)
	case err == nil && result.RequeueAfter > 0:
		return result, hook.RequeuedAfter, nil
	case err == nil:
		return result, hook.Succeeded, nil
	case IsTerminal(err):
		return result, hook.FailedTerminally, err
	default:
		return result, hook.Failed, err
	}
}

// settle gives the key back to the queue, in exactly one way.
func (c *Controller[K]) settle(log *slog.Logger, item workqueue.Item[K], result Result, outcome hook.Outcome, err error) {
	var lost error // why the item could not be settled
	switch outcome {
	case hook.Succeeded:
		lost = item.Done()
	case hook.RequeuedAfter:
		lost = item.After(result.RequeueAfter)
	case hook.FailedTerminally:
		log.Error("reconcile failed for good", "err", err)
		lost = item.Done()
	case hook.Interrupted:
		log.Info("reconcile interrupted", "err", err)
		lost = item.Release()
	default:
		var delay time.Duration
		delay, lost = item.RetryNotBefore(err, result.RequeueAfter)
		log.Error("reconcile failed", "err", err, "retryAfter", delay)
	}
	if lost != nil {
		log.Error("the key could not be settled", "err", lost)
	}
}
