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

// past is what the last Reconcile of a key left behind: its failure, and writes that may not be
// visible yet. Most Reconciles leave none. A past is not changed while it is in a record.
type past struct {
	delivery uint64
	failure  *Failure
	made     map[version]*ledger.Write // own writes of a failure, see ownEvents
	awaited  []unseen                  // writes that may not be visible yet
	answers  *ledger.Ledger            // the source of awaited, if requests are in flight
	revived  []unseen                  // part of awaited that is not from answers
	lost     error                     // describes writes beyond the ledger's limit
	unsure   []unseen                  // part of awaited with lost answers
	givenUp  []unseen                  // writes that were not visible in time
	wrote    []ledger.Write            // own writes, for interrupts
	stale    bool
	backsOff bool // it failed, and is retried after a backoff

	since    time.Time // start of the key's wait, or zero
	checks   int       // how often it was parked
	missing  string    // what it waits for
	expired  bool      // the bound is over
	doubts   error     // what cannot be waited for
	unnotify func()    // cancels the notification, or nil
}

func (p *past) empty() bool {
	return p.failure == nil && p.lost == nil && len(p.awaited) == 0 && len(p.wrote) == 0 && len(p.givenUp) == 0 && !p.stale
}

type version struct{ uid, resourceVersion string }

// Failure describes how the last Reconcile of a key failed.
type Failure struct {
	At          time.Time
	ReconcileID string // as in the log
	Err         string
	Terminal    bool // not retried
}

// unseen is a write that the caches may not show yet.
type unseen struct {
	ledger.Write

	// State to wait for instead, after the API server was asked about a lost answer.
	resolved bool
	instead  []cache.Written

	unresolvable bool // no cache of ours keeps the object
	failing      bool // given up while its informer failed
}

// A key spins if it makes itself due spinFree times in a row, by its own writes or by a
// RequeueAfter below spinGap. Reconciles are in a row if each begins less than spinGap after the
// previous one. Then they begin at least spinBase apart, doubled each time up to spinMax. A
// Reconcile for any other reason begins at once and ends the row.
const (
	spinFree = 100
	spinGap  = 100 * time.Millisecond
	spinBase = 10 * time.Millisecond
	spinMax  = time.Second
)

// spin describes a key that makes itself due. Only the worker that holds the key changes it.
type spin struct {
	known bool
	row   int           // Reconciles in a row that the key itself caused
	last  time.Duration // start of the last one, on the controller's clock
}

// over reports whether the key's last write did not make it due.
func (s *spin) over(now time.Duration) bool { return now-s.last > s.pause()+spinGap }

// pause returns the shortest time between the starts of two Reconciles.
func (s *spin) pause() time.Duration {
	over := s.row - spinFree
	if over < 0 {
		return 0
	}
	return min(spinMax, spinBase<<min(over, 10))
}

// pauser is the origin of a pause.
type pauser struct {
	by   any    // the observed queue, or nil for PauseKey
	text string // for the Snapshot
}

// record is what the controller remembers of a key between Reconciles.
type record[K comparable] struct {
	past        *past       // what its last Reconcile left behind
	spin        spin        // Reconciles that it caused itself
	interrupted int         // interruptions in a row
	level       *slog.Level // see SetLogLevel
	pausedBy    []pauser    // replaced, never changed
}

func (r *record[K]) empty() bool {
	return r.past == nil && r.spin == spin{} && r.interrupted == 0 && r.level == nil && len(r.pausedBy) == 0
}

// records are the keys' records. Few keys have one. Without records, a look costs one atomic load.
type records[K comparable] struct {
	n atomic.Int64 // len(keys)

	mu      sync.Mutex // guards what follows
	keys    map[K]*record[K]
	sweepAt int
}

const firstSweep = 256

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

// edit changes a key's record, and deletes it if it is empty then. change runs under the lock.
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

// take returns a copy of a key's record, and removes the past from the record.
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
		now := *was.past // a sweep may be reading it
		was.past, r.past = &now, nil
		t.storeLocked(key, r)
	}
	return was
}

func (t *records[K]) put(key K, p *past) {
	t.edit(key, func(r *record[K]) { r.past = p })
}

func (t *records[K]) all() map[K]record[K] {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[K]record[K], len(t.keys))
	for key, r := range t.keys {
		all[key] = *r
	}
	return all
}

// sweep clears records that no longer matter, if there are many. over gets a copy of each record
// and clears what is over; it runs without the lock. Parts that change meanwhile stay.
func (t *records[K]) sweep(over func(key K, r *record[K])) {
	t.mu.Lock()
	crowded := len(t.keys) >= t.sweepAt
	if crowded {
		t.sweepAt *= 2 // until the end of this sweep
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
