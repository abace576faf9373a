// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/ledger"
)

// past is what the last Reconcile of a key left behind: writes that informers may not show yet, and
// its failure. Most Reconciles leave nothing. It does not change while it is in a record.
type past struct {
	delivery uint64
	failure  *Failure
	made     map[version]*ledger.Write // after a failure: its own writes, which do not end its backoff (C7)
	awaited  []unseen                  // its writes, as far as the caches may not show them yet (C6)
	answers  *ledger.Ledger            // where awaited comes from, if requests have no answer yet
	revived  []unseen                  // those of awaited that do not come from there
	lost     error                     // further writes, too many to be remembered
	unsure   []unseen                  // those of awaited with a lost answer
	givenUp  []unseen                  // what was not shown within the bound
	wrote    []ledger.Write            // its writes, if the next Reconcile may be interrupted
	stale    bool                      // it returned Stale
	backsOff bool                      // it failed, and is tried again after a backoff

	since    time.Time // when the key began to wait; zero if it did not
	checks   int       // how often it was parked
	missing  string    // what it waits for
	expired  bool      // it waited as long as it may
	doubts   error     // what cannot be waited for
	unnotify func()    // ends a notification; nil if there is none
}

// empty reports whether nothing depends on it.
func (p *past) empty() bool {
	return p.failure == nil && p.lost == nil && len(p.awaited) == 0 && len(p.wrote) == 0 && len(p.givenUp) == 0 && !p.stale
}

// version is a state of an object.
type version struct{ uid, resourceVersion string }

// Failure is how the last Reconcile of a key failed.
type Failure struct {
	At          time.Time
	ReconcileID string // as in the log
	Err         string
	Terminal    bool // the key is not retried
}

// unseen is a write that the caches may not show yet.
type unseen struct {
	ledger.Write

	// What the caches have to show instead, once the API server was asked about a lost answer.
	resolved bool
	instead  []cache.Written

	unresolvable bool // no cache of ours keeps the object, so there is no place to look
	failing      bool // it was given up while its informer failed
}

// A key spins if it makes itself due, by its own writes or by a RequeueAfter shorter than spinGap,
// spinFree times in a row, each less than spinGap after the one before began (C13). From then on its
// Reconciles begin at least spinBase apart, a time that doubles with each up to spinMax. A
// Reconcile that has any other reason begins at once, and ends the row.
const (
	spinFree = 100
	spinGap  = 100 * time.Millisecond
	spinBase = 10 * time.Millisecond
	spinMax  = time.Second
)

// spin describes a key that has made itself due, until a Reconcile does nothing that could make its
// key due again. Only the worker that holds the key changes it.
type spin struct {
	known bool
	row   int           // how many Reconciles in a row the key itself has caused
	last  time.Duration // when the last one began, by the controller's clock
}

// over reports whether the last write of the key has not made it due.
func (s *spin) over(now time.Duration) bool { return now-s.last > s.pause()+spinGap }

// pause is how long after the last Reconcile the next one may begin.
func (s *spin) pause() time.Duration {
	over := s.row - spinFree
	if over < 0 {
		return 0
	}
	return min(spinMax, spinBase<<min(over, 10))
}

// pauser is what has paused a key.
type pauser struct {
	by   any    // the observed queue, or nil for PauseKey
	text string // for the Snapshot
}

// record is what the controller remembers of a key between its Reconciles.
type record[K comparable] struct {
	past        *past       // what its last Reconcile left behind
	spin        spin        // how often in a row it has made itself due
	interrupted int         // how often in a row its Reconcile was interrupted
	level       *slog.Level // see SetLogLevel
	pausedBy    []pauser    // replaced, never changed
}

func (r *record[K]) empty() bool {
	return r.past == nil && r.spin == spin{} && r.interrupted == 0 && r.level == nil && len(r.pausedBy) == 0
}

// records are those of the keys that have one: few, most of the time. If there are none, a look costs
// one atomic load.
type records[K comparable] struct {
	n atomic.Int64 // how many there are

	mu      sync.Mutex // guards what follows
	keys    map[K]*record[K]
	sweepAt int
}

// firstSweep is how many records there are before the first sweep.
const firstSweep = 256

// look returns a copy of a key's record.
func (t *records[K]) look(key K) record[K] {
	if t.n.Load() == 0 {
		return record[K]{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.keys[key]; r != nil {
		return *r
	}
	return record[K]{}
}

// edit changes a key's record, and forgets it if that leaves it empty. change runs under the lock.
func (t *records[K]) edit(key K, change func(*record[K])) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.keys[key]
	if r == nil {
		r = &record[K]{}
	}
	change(r)
	t.storeLocked(key, r)
}

func (t *records[K]) storeLocked(key K, r *record[K]) {
	if r.empty() {
		delete(t.keys, key)
	} else {
		if t.keys == nil {
			t.keys, t.sweepAt = map[K]*record[K]{}, firstSweep
		}
		t.keys[key] = r
	}
	t.n.Store(int64(len(t.keys)))
}

// take returns a copy of a key's record, and removes the past from it.
func (t *records[K]) take(key K) record[K] {
	if t.n.Load() == 0 {
		return record[K]{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.keys[key]
	if r == nil {
		return record[K]{}
	}
	was := *r
	if was.past != nil {
		now := *was.past // a sweep may be looking at it
		was.past, r.past = &now, nil
		t.storeLocked(key, r)
	}
	return was
}

// put keeps a key's past.
func (t *records[K]) put(key K, p *past) {
	t.edit(key, func(r *record[K]) { r.past = p })
}

// all returns a copy of each record.
func (t *records[K]) all() map[K]record[K] {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[K]record[K], len(t.keys))
	for key, r := range t.keys {
		all[key] = *r
	}
	return all
}

// sweep removes from each record what is over, if there are many. It calls over without the lock,
// with a copy to clear: what has changed meanwhile stays.
func (t *records[K]) sweep(over func(key K, r *record[K])) {
	t.mu.Lock()
	crowded := len(t.keys) >= t.sweepAt
	if crowded {
		t.sweepAt *= 2 // until the end
	}
	t.mu.Unlock()
	if !crowded {
		return
	}
	for key, before := range t.all() {
		after := before
		over(key, &after)
		t.edit(key, func(r *record[K]) {
			if after.past != before.past && r.past == before.past {
				r.past = nil
			}
			if after.spin != before.spin && r.spin == before.spin {
				r.spin = spin{}
			}
		})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweepAt = max(firstSweep, 2*len(t.keys))
}
