// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync/atomic"
	"time"
)

// clock tells the time of a controller: since it was made. To read the machine's clock costs a tenth of what a Reconcile costs that
// does nothing. So while Reconciles follow one another, each worker reads it once for each tick of the watchdog, which runs while
// there is something to watch.
type clock struct {
	began time.Time
	exact bool // it is read each time: somebody wants to know it exactly

	ticked atomic.Int64 // when the watchdog's last tick was, as a time.Duration
	awake  atomic.Bool  // there are ticks
	wake   chan struct{}
}

func newClock(exact bool) clock {
	return clock{began: time.Now(), exact: exact, wake: make(chan struct{}, 1)}
}

// now reads the machine's clock.
func (c *clock) now() time.Duration { return time.Since(c.began) }

// watch is what a worker knows of the time: when it read the clock, and at which tick. Only the worker uses it.
type watch struct{ read, tick time.Duration }

// lately is now, or a little before: not before the last tick.
func (c *clock) lately(w *watch) time.Duration {
	if tick := time.Duration(c.ticked.Load()); c.exact || !c.awake.Load() || tick != w.tick {
		w.read, w.tick = c.now(), tick
	}
	return w.read
}

// tick begins a new one.
func (c *clock) tick() (now time.Duration) {
	now = c.now()
	c.ticked.Store(int64(now))
	return now
}

// rouse wakes the watchdog. It is called when there is a Reconcile to be seen.
func (c *clock) rouse() {
	if c.awake.Load() {
		return
	}
	c.tick()
	if !c.awake.Swap(true) {
		select {
		case c.wake <- struct{}{}:
		default: // it is about to wake
		}
	}
}

// doze waits until it is roused, or done is closed, unless there is something to be seen: it may have begun just before.
func (c *clock) doze(seen func() bool, done <-chan struct{}) (awake bool) {
	c.awake.Store(false)
	if seen() {
		c.rouse()
	}
	select {
	case <-c.wake:
		return true
	case <-done:
		c.awake.Store(false)
		return false
	}
}
