// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"log/slog"

	"github.com/setpoint-dev/setpoint/workqueue"
)

// Pause has the controller reconcile nothing until Resume, also in later terms. Reconciles that run go on to their end, and keys
// go on becoming due. It may be called at any time.
func (c *Controller[K]) Pause() { c.queue.PauseAll() }

// Resume ends Pause. Keys that are paused one by one stay paused.
func (c *Controller[K]) Resume() {
	if c.queue.Len().AllPaused {
		c.workers.resume(c.now())
		c.queue.ResumeAll()
	}
}

// PauseKey has the controller not reconcile a key until ResumeKey, whether there is such a key yet or not. A Reconcile that runs
// goes on to its end, and what the key is due for meanwhile is kept. It may be called at any time.
func (c *Controller[K]) PauseKey(key K) { c.pauses.set(key, pauser{}, true) }

// ResumeKey ends PauseKey. A key that is also paused by its object's annotation (see [PausedAnnotation]) stays paused.
func (c *Controller[K]) ResumeKey(key K) { c.pauses.set(key, pauser{}, false) }

// Requeue makes a key due at once, whatever it waits for: its backoff, say, but not its own writes, which it goes on waiting for (C6).
// One that is being reconciled is reconciled once more. One that is paused is due when it is resumed.
func (c *Controller[K]) Requeue(key K) { c.queue.RequeueNow(key, workqueue.Reason{}) }

// SetLogLevel has the Reconciles of one key that begin from now on log at this level, instead of the logger's own, until
// ResetLogLevel. The handler must leave it to its Enabled method which lines it takes, as those of log/slog do.
func (c *Controller[K]) SetLogLevel(key K, level slog.Level) {
	c.records.edit(key, func(r *record[K]) { r.level = &level })
}

// ResetLogLevel ends SetLogLevel.
func (c *Controller[K]) ResetLogLevel(key K) {
	c.records.edit(key, func(r *record[K]) { r.level = nil })
}

// SetWorkers changes how many Reconciles run at once, at any time: before the controller leads, while it does, and between terms.
// More start at once. Fewer: those that wait for a key end at once, others when they are done with theirs. The number stays for
// later terms. It must be at least 1: to have none work, use Pause.
func (c *Controller[K]) SetWorkers(n int) error {
	if n < 1 {
		return fmt.Errorf("controller %q: %d workers: there must be at least 1; to have none work, use Pause", c.name, n)
	}
	for _, retire := range c.workers.set(n) {
		retire()
	}
	return nil
}
