// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
)

// Pause has the controller reconcile nothing until Resume, also in later terms. Reconciles that run go on to their end, and keys
// go on becoming due. It may be called at any time.
func (c *Controller[K]) Pause() { c.queue.PauseAll() }

// Resume ends Pause. Keys that are paused one by one stay paused.
func (c *Controller[K]) Resume() {
	if c.queue.AllPaused() {
		c.workers.resume(c.clock.now())
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
func (c *Controller[K]) SetLogLevel(key K, level slog.Level) { c.levels.set(key, level) }

// ResetLogLevel ends SetLogLevel.
func (c *Controller[K]) ResetLogLevel(key K) { c.levels.reset(key) }

// pause notes that somebody wants a key paused, or does not any more, and tells the queue what follows.
func (c *Controller[K]) pause(key K, by pauser[K], paused bool) {
	if c.pauses.set(key, by, paused) {
		c.tellPaused(key)
	}
}

// tellPaused tells the queue whether a key is paused. The queue may call the host's code, so no lock is held meanwhile: whoever finds
// that it has changed again tells it again, so that the last one to tell it tells it how things are.
func (c *Controller[K]) tellPaused(key K) {
	for {
		paused := c.pauses.has(key)
		if paused {
			c.queue.Pause(key)
		} else {
			c.queue.Resume(key)
		}
		if c.pauses.has(key) == paused {
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

// pauses are the keys that are paused, and who has paused them.
type pauses[K comparable] struct {
	n atomic.Int64 // how many keys there are

	mu   sync.Mutex // guards what follows
	keys map[K]map[pauser[K]]struct{}
}

// set notes whether somebody wants a key paused. It says whether that makes a difference to the key.
func (p *pauses[K]) set(key K, by pauser[K], paused bool) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.keys[key])
	switch {
	case paused && before == 0:
		if p.keys == nil {
			p.keys = map[K]map[pauser[K]]struct{}{}
		}
		p.keys[key] = map[pauser[K]]struct{}{by: {}}
	case paused:
		p.keys[key][by] = struct{}{}
	default:
		delete(p.keys[key], by)
		if len(p.keys[key]) == 0 {
			delete(p.keys, key)
		}
	}
	p.n.Store(int64(len(p.keys)))
	return (before == 0) != (len(p.keys[key]) == 0)
}

func (p *pauses[K]) has(key K) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.keys[key]) > 0
}

// all returns by whom each key is paused.
func (p *pauses[K]) all() map[K][]pauser[K] {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[K][]pauser[K], len(p.keys))
	for key, by := range p.keys {
		all[key] = slices.Collect(maps.Keys(by))
	}
	return all
}

// levels are the keys that have a log level of their own.
type levels[K comparable] struct {
	n atomic.Int64 // how many there are: mostly none

	mu   sync.Mutex // guards what follows
	keys map[K]slog.Level
}

func (l *levels[K]) set(key K, level slog.Level) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys == nil {
		l.keys = map[K]slog.Level{}
	}
	l.keys[key] = level
	l.n.Store(int64(len(l.keys)))
}

func (l *levels[K]) reset(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.keys, key)
	l.n.Store(int64(len(l.keys)))
}

// handler returns what logs for a key.
func (l *levels[K]) handler(base slog.Handler, key K) slog.Handler {
	if l.n.Load() == 0 {
		return base
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if level, ok := l.keys[key]; ok {
		return leveled{base, level}
	}
	return base
}

func (l *levels[K]) all() map[K]slog.Level {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.keys)
}

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
