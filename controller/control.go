// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Pause has the controller reconcile nothing until Resume, also in later terms. Reconciles that run go on to their end, and keys
// go on becoming due. It may be called at any time.
func (c *Controller[K]) Pause() { c.queue.PauseAll() }

// Resume ends Pause. Keys that are paused one by one stay paused.
func (c *Controller[K]) Resume() {
	if c.queue.AllPaused() {
		c.workers.resume(c.now())
		c.queue.ResumeAll()
	}
}

// PauseKey has the controller not reconcile a key until ResumeKey, whether there is such a key yet or not. A Reconcile that runs
// goes on to its end, and what the key is due for meanwhile is kept. It may be called at any time.
func (c *Controller[K]) PauseKey(key K) { c.pause(key, pauser[K]{}, true) }

// ResumeKey ends PauseKey. A key that is also paused by its object's annotation (see [PausedAnnotation]) stays paused.
func (c *Controller[K]) ResumeKey(key K) { c.pause(key, pauser[K]{}, false) }

// Requeue makes a key due at once, whatever it waits for: its backoff, say, but not its own writes, which it goes on waiting for (C6).
// One that is being reconciled is reconciled once more. One that is paused is due when it is resumed.
func (c *Controller[K]) Requeue(key K) { c.queue.RequeueNow(key) }

// SetLogLevel has the Reconciles of one key that begin from now on log at this level, instead of the logger's own, until
// ResetLogLevel. The handler must leave it to its Enabled method which lines it takes, as those of log/slog do.
func (c *Controller[K]) SetLogLevel(key K, level slog.Level) {
	c.records.edit(key, func(r *record[K]) { r.level = &level })
}

// ResetLogLevel ends SetLogLevel.
func (c *Controller[K]) ResetLogLevel(key K) {
	c.records.edit(key, func(r *record[K]) { r.level = nil })
}

// pause notes that somebody wants a key paused, or does not any more, and tells the queue what follows.
func (c *Controller[K]) pause(key K, by pauser[K], paused bool) {
	var before, after bool
	c.records.edit(key, func(r *record[K]) {
		before = len(r.pausedBy) > 0
		r.pausedBy = slices.DeleteFunc(slices.Clone(r.pausedBy), func(p pauser[K]) bool { return p == by })
		if paused {
			r.pausedBy = append(r.pausedBy, by)
		}
		after = len(r.pausedBy) > 0
	})
	if before != after {
		c.tellPaused(key)
	}
}

// tellPaused tells the queue whether a key is paused. The queue may call the host's code, so no lock is held meanwhile: whoever finds
// that it has changed again tells it again, so that the last one to tell it tells it how things are.
func (c *Controller[K]) tellPaused(key K) {
	for {
		paused := c.isPaused(key)
		if paused {
			c.queue.Pause(key)
		} else {
			c.queue.Resume(key)
		}
		if c.isPaused(key) == paused {
			return
		}
	}
}

// pauser is who has paused a key: an object that a source has shown, by its annotation, or the program, which is the zero pauser.
type pauser[K comparable] struct {
	by     *observed[K]
	object types.NamespacedName
}

func (p pauser[K]) String() string {
	if p.by == nil {
		return "PauseKey"
	}
	return "annotation " + PausedAnnotation + " of " + p.object.String() + ", " + p.by.source.String()
}

func (c *Controller[K]) isPaused(key K) bool { return len(c.records.look(key).pausedBy) > 0 }

// leveled is a handler with another level.
type leveled struct {
	slog.Handler

	level slog.Level
}

// Enabled implements slog.Handler.
func (l leveled) Enabled(_ context.Context, level slog.Level) bool { return level >= l.level }

// WithAttrs implements slog.Handler.
func (l leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return leveled{l.Handler.WithAttrs(attrs), l.level}
}

// WithGroup implements slog.Handler.
func (l leveled) WithGroup(name string) slog.Handler {
	return leveled{l.Handler.WithGroup(name), l.level}
}
