// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// workers are those of one term, and how many there are to be.
type workers[K comparable] struct {
	mu        sync.Mutex // guards what follows, and slot.retired
	want      int
	leading   bool
	term      string          // under which they lead; empty: there is none
	hire      func() *slot[K] // starts one more; nil when there is nothing more to take
	slots     []*slot[K]      // replaced, never changed
	resumed   time.Duration   // when the term began, or Resume was called
	completed time.Duration   // when the last of those that have left had completed a Reconcile
}

// open begins a term, unless there is one already.
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

// close ends a term whose workers have all left.
func (w *workers[K]) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leading, w.term = false, ""
}

// leads reports whether they may take keys, and under which term.
func (w *workers[K]) leads() (leading bool, term string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leading, w.term
}

// set changes how many there are to be, and returns what has surplus ones leave.
func (w *workers[K]) set(n int) (retire []context.CancelFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.want = n
	w.fillLocked()
	stay := slices.DeleteFunc(slices.Clone(w.slots), func(s *slot[K]) bool { return s.retired })
	slices.SortStableFunc(stay, func(a, b *slot[K]) int { return a.order() - b.order() })
	for _, s := range stay[:max(0, len(stay)-n)] {
		s.retired = true
		retire = append(retire, s.retire)
	}
	return retire
}

// fillLocked hires as many as are missing. One that is to leave counts until it has left, but one is to stay: those that leave may
// never come to the end of their Reconciles.
func (w *workers[K]) fillLocked() {
	for w.hire != nil && (len(w.slots) < w.want || !slices.ContainsFunc(w.slots, func(s *slot[K]) bool { return !s.retired })) {
		w.slots = append(slices.Clip(w.slots), w.hire())
	}
}

// work is what one worker does. A Reconcile that ends the goroutine takes the worker with it; then another takes its place.
func (w *workers[K]) work(s *slot[K], next func() bool) {
	exited := true
	defer func() {
		s.retire()
		w.left(s, exited)
	}()
	s.introduce()
	for next() {
	}
	exited = false
}

func (w *workers[K]) left(s *slot[K], exited bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots = slices.DeleteFunc(slices.Clone(w.slots), func(other *slot[K]) bool { return other == s })
	w.completed = max(w.completed, time.Duration(s.completed.Load()))
	if !exited && !s.retired {
		w.hire = nil
	}
	w.fillLocked()
}

// progress returns the workers, when the last of those that have left had completed a Reconcile, and when the controller was last
// allowed to begin: 0 while it does not lead.
func (w *workers[K]) progress() (slots []*slot[K], completed, moved time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leading {
		moved = max(1, w.resumed)
	}
	return w.slots, w.completed, moved
}

// resume notes that keys may be taken from now on.
func (w *workers[K]) resume(now time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resumed = now
}

// all returns what there is to know of the workers.
func (w *workers[K]) all() (slots []*slot[K], want int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slots, w.want
}

// stats are the figures for hook.ControllerStarted.
func (w *workers[K]) stats() hook.ControllerStats {
	slots, want := w.all()
	s := hook.ControllerStats{Workers: want}
	for _, slot := range slots {
		if slot.run.Load() != nil {
			s.Active++
		}
	}
	return s
}

// slot is what one worker does.
type slot[K comparable] struct {
	retire  context.CancelFunc // has it take no more keys
	retired bool               // it was called, because there are to be fewer

	goroutine []byte                     // what its stack begins with; set before any run
	run       atomic.Pointer[running[K]] // nil while it waits for a key
	completed atomic.Int64               // when the last one had, as a time.Duration; 0: there was none

	reported, ended *running[K] // the watchdog's: the last that was slow, and the last that was over its deadline
}

// introduce records which goroutine the worker is.
func (s *slot[K]) introduce() {
	var buf [64]byte
	head := buf[:runtime.Stack(buf[:], false)] // goroutine 17 [running]: ...
	if end := bytes.IndexByte(head, '['); end > 0 {
		head = head[:end]
	}
	s.goroutine = bytes.Clone(head)
}

// end notes that its Reconcile has returned.
func (s *slot[K]) end(now time.Duration) {
	s.completed.Store(int64(now))
	s.run.Store(nil)
}

// order is that in which surplus workers leave: first those that wait for a key.
func (s *slot[K]) order() int {
	if s.run.Load() == nil {
		return 0
	}
	return 1
}
