// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// pool has the workers of a controller.
type pool[K comparable] struct {
	completed atomic.Int64 // when the last Reconcile returned, as a time.Duration, or 0
	took      durations
	requests  atomic.Uint64 // of the Reconciles that have returned

	mu   sync.Mutex        // guards what follows
	hire func() *worker[K] // starts a worker; nil at the end of a term
	poolState[K]
}

type poolState[K comparable] struct {
	want    int
	leading bool
	term    string
	workers []*worker[K]  // replaced, never changed
	resumed time.Duration // start of the term, or of Resume
}

type worker[K comparable] struct {
	goroutine string                     // its name in stacks, set before any run
	run       atomic.Pointer[running[K]] // nil while it waits for a key

	reported, overdue *running[K] // last reported as slow, last over its deadline

	began hook.Reconciling // the last ones: new ones would be garbage for each key
	ended hook.Reconciled
}

func (p *pool[K]) countRequests(n int) {
	if n > 0 {
		p.requests.Add(uint64(n))
	}
}

func (p *pool[K]) state() poolState[K] {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.poolState
}

// set sets the number of workers of the next term.
func (p *pool[K]) set(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want = n
}

func (p *pool[K]) open(hire func() *worker[K], now time.Duration, term string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leading {
		return false
	}
	p.leading, p.term, p.hire, p.resumed = true, term, hire, now
	p.fillLocked()
	return true
}

func (p *pool[K]) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leading, p.term = false, ""
}

func (p *pool[K]) fillLocked() {
	for p.hire != nil && len(p.workers) < p.want {
		p.workers = append(slices.Clip(p.workers), p.hire())
	}
}

// work calls next until it returns false. If a Reconcile ends the goroutine, a new worker follows.
func (p *pool[K]) work(w *worker[K], next func() bool) {
	exited := true
	defer func() { p.left(w, exited) }()
	for next() {
	}
	exited = false
}

func (p *pool[K]) left(w *worker[K], exited bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.workers = slices.DeleteFunc(slices.Clone(p.workers), func(other *worker[K]) bool { return other == w })
	if !exited {
		p.hire = nil
	}
	p.fillLocked()
}

func (p *pool[K]) resume(now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resumed = now
}

func (p poolState[K]) running() (runs []*running[K]) {
	for _, w := range p.workers {
		if r := w.run.Load(); r != nil {
			runs = append(runs, r)
		}
	}
	sort.Slice(runs, func(i, j int) bool { return runs[i].since < runs[j].since }) // see sortByKey
	return runs
}
