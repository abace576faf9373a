// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

type workers[K comparable] struct {
	completed atomic.Int64 // when the last Reconcile returned, as a time.Duration, or 0

	mu   sync.Mutex      // guards what follows, and slot.retired
	hire func() *slot[K] // starts a worker; nil at the end of a term
	crew[K]
}

type crew[K comparable] struct {
	want    int
	leading bool
	term    string
	slots   []*slot[K]    // replaced, never changed
	resumed time.Duration // start of the term, or of Resume
}

type slot[K comparable] struct {
	retire  context.CancelFunc
	retired bool // surplus

	goroutine string                     // its name in stacks, set before any run
	run       atomic.Pointer[running[K]] // nil while it waits for a key

	reported, ended *running[K] // last reported as slow, last over its deadline
}

// Working returns the context of the Reconcile in progress, or nil.
func (s *slot[K]) Working() context.Context {
	if r := s.run.Load(); r != nil {
		return r
	}
	return nil
}

func (w *workers[K]) now() crew[K] {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.crew
}

func (w *workers[K]) open(hire func() *slot[K], now time.Duration, term string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leading {
		return false
	}
	w.leading, w.term, w.hire, w.resumed = true, term, hire, now
	w.fillLocked()
	return true
}

func (w *workers[K]) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leading, w.term = false, ""
}

// set changes the number of workers. Idle surplus workers leave first.
func (w *workers[K]) set(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.want = n
	w.fillLocked()
	var idle, busy []*slot[K]
	for _, s := range w.slots {
		switch {
		case s.retired:
		case s.run.Load() == nil:
			idle = append(idle, s)
		default:
			busy = append(busy, s)
		}
	}
	surplus := max(0, len(idle)+len(busy)-n)
	for _, s := range slices.Concat(idle, busy)[:surplus] {
		s.retired = true
		s.retire()
	}
}

// fillLocked starts missing workers. At least one is not retired, because retired ones may never
// finish their Reconcile.
func (w *workers[K]) fillLocked() {
	for w.hire != nil && (len(w.slots) < w.want || !slices.ContainsFunc(w.slots, func(s *slot[K]) bool { return !s.retired })) {
		w.slots = append(slices.Clip(w.slots), w.hire())
	}
}

// work calls next until it returns false. If a Reconcile ends the goroutine, a new worker follows.
func (w *workers[K]) work(s *slot[K], next func() bool) {
	exited := true
	defer func() {
		s.retire()
		w.left(s, exited)
	}()
	for next() {
	}
	exited = false
}

func (w *workers[K]) left(s *slot[K], exited bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots = slices.DeleteFunc(slices.Clone(w.slots), func(other *slot[K]) bool { return other == s })
	if !exited && !s.retired {
		w.hire = nil
	}
	w.fillLocked()
}

func (w *workers[K]) resume(now time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resumed = now
}

func (c crew[K]) running() (runs []*running[K]) {
	for _, s := range c.slots {
		if r := s.run.Load(); r != nil {
			runs = append(runs, r)
		}
	}
	sort.Slice(runs, func(i, j int) bool { return runs[i].since < runs[j].since }) // see sortByKey
	return runs
}

func (w *workers[K]) stats() hook.ControllerStats {
	now := w.now()
	return hook.ControllerStats{Workers: now.want, Active: len(now.running())}
}
