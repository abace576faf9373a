// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/why"
)

// lastRun is what a key's last Reconcile left behind. It is not changed while it is in a record.
type lastRun struct {
	delivery uint64
	failure  *Failure
	made     map[version]made          // of a failure
	visible  map[version]*ledger.Write // before it began
	hasty    int                       // attempts begun by events that are perhaps the key's own
	began    time.Duration             // start, on the controller's clock
	writes   []pendingWrite            // carried ones, and then its own; each oldest first
	answers  *journal.Journal          // source of its own writes, if requests are in flight
	lost     error                     // about writes beyond the ledger's limit
	stale    bool
	held     bool // parked until its cluster is settled
	backsOff bool // retried after a backoff

	since    time.Time // start of the wait, or zero
	checks   int       // how often parked
	missing  string
	expired  bool // the bound is over
	doubts   error
	unnotify func() // cancels the notification, or nil
}

func (p *lastRun) empty() bool {
	return p.failure == nil && p.lost == nil && len(p.writes) == 0 && !p.stale
}

// Failure describes how a key's last Reconcile failed.
type Failure struct {
	At          time.Time // the end of the Reconcile
	ReconcileID string    // as in the log
	Err         string    // the text of the error
	Terminal    bool      // not retried
	// Reason is a code for the cause: why.Terminal, why.GaveUp, why.Panicked, why.TimedOut after
	// Options.Deadline, why.Fenced, or the result of why.OfError. The first that applies counts.
	Reason why.Reason
}

// writeState is how far the caches are with a write.
type writeState uint8

const (
	writeWaits     writeState = iota // the caches may not show it yet
	writeUnsure                      // it waits, and its answer was lost
	writeGivenUp                     // it was not visible in time
	writeShown                       // it was given up, and is visible now
	writeUnawaited                   // ReadYourWrites is off
)

func (s writeState) pending() bool { return s <= writeUnsure }

type pendingWrite struct {
	ledger.Write

	state writeState
	// carried is set for what the last Reconcile has not written: the writes of earlier ones, and
	// events.
	carried bool

	// What to wait for instead, after the API server was asked about a lost answer.
	resolved bool
	instead  []consistency.Write
	open     bool // the write may still be carried out

	batch *consistency.Batch // of a previous leader, which was taken over from at taken; else nil
	taken time.Time

	event *event // instead of a write of the key; it has one element of instead

	unresolvable bool // no cache of ours keeps the object
	failing      bool // given up while its informer failed
}

// See "Hot loops" in the package doc.
const (
	spinFree = 100
	spinGap  = 100 * time.Millisecond
	spinBase = 10 * time.Millisecond
	spinMax  = time.Second
)

// spin describes a key that makes itself due. Only the key's worker changes it.
type spin struct {
	known  bool
	row    int
	last   time.Duration // start of the last one
	fields string        // what it changes each time, if that is known
}

func (s *spin) over(now time.Duration) bool { return now-s.last > s.pause()+spinGap }

// spins reports whether the key is slowed down.
func (s *spin) spins(now time.Duration) bool { return s.known && s.row >= spinFree && !s.over(now) }

func (s *spin) pause() time.Duration {
	over := s.row - spinFree
	if over < 0 {
		return 0
	}
	return min(spinMax, spinBase<<min(over, 10))
}

type pauser struct {
	by   any    // an observer, overHTTP, or nil for PauseKey
	text string // for the Snapshot
}

// is ignores the time and the user of a pause over HTTP.
func (p pauser) is(other pauser) bool { return p == other || p.by == other.by && p.by == overHTTP{} }

func textsOf(pausers []pauser) (texts []string) {
	for _, p := range pausers {
		texts = append(texts, p.text)
	}
	slices.Sort(texts)
	return texts
}

type record[K comparable] struct {
	past        *lastRun
	events      []event // not shown by all informers when they came; replaced, never changed
	spin        spin
	fight       *fight
	interrupted int // in a row
	level       *slog.Level
	gone        bool     // the object was deleted: level ends with the last Reconcile
	pausedBy    []pauser // replaced, never changed
}

func (r *record[K]) empty() bool {
	return r.past == nil && len(r.events) == 0 && r.spin == spin{} && r.fight == nil && r.interrupted == 0 && r.level == nil && len(r.pausedBy) == 0
}

// failureCounts counts failures by their Reason. A Reason that has occurred stays, with 0.
type failureCounts map[why.Reason]int

func (f *failureCounts) add(p *lastRun, n int) {
	if p == nil || p.failure == nil {
		return
	}
	if *f == nil {
		*f = failureCounts{}
	}
	(*f)[p.failure.Reason] += n
}

// replace counts a failure that replaces another one. Both may be nil.
func (f *failureCounts) replace(before, after *lastRun) {
	if before != after {
		f.add(before, -1)
		f.add(after, 1)
	}
}

func (f failureCounts) sum() (n int) {
	for _, of := range f {
		n += of
	}
	return n
}

type records[K comparable] struct {
	n atomic.Int64

	mu      sync.Mutex // guards what follows
	keys    map[K]*record[K]
	failing failureCounts // of the records with a failure
	sweepAt int
	fights  map[K]struct{} // the keys of the records with a fight
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

// edit calls change under the lock.
func (t *records[K]) edit(key K, change func(*record[K])) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.keys[key]
	if r == nil {
		r = &record[K]{}
	}
	before := r.past
	change(r)
	t.failing.replace(before, r.past)
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
	if r.fight == nil {
		delete(t.fights, key)
	} else if _, ok := t.fights[key]; !ok {
		if t.fights == nil {
			t.fights = map[K]struct{}{}
		}
		t.fights[key] = struct{}{}
	}
	t.n.Store(int64(len(t.keys)))
}

// take takes the past and the events of a key. If the key waits, later events stay for later.
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
		now.writes = slices.Clone(now.writes)
		t.failing.replace(r.past, nil)
		was.past, r.past = &now, nil
	}
	if was.past == nil || was.past.since.IsZero() {
		r.events = nil
	} else {
		was.events = nil
	}
	if was.past != nil || was.events != nil {
		t.storeLocked(key, r)
	}
	return was
}

func (t *records[K]) put(key K, p *lastRun) {
	t.edit(key, func(r *record[K]) { r.past = p })
}

// failures returns a copy of the counts.
func (t *records[K]) failures() failureCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.failing)
}

type failedKey[K comparable] struct {
	key     K
	failure *Failure
}

// failed returns the keys whose last Reconcile failed.
func (t *records[K]) failed() []failedKey[K] {
	t.mu.Lock()
	defer t.mu.Unlock()
	failed := make([]failedKey[K], 0, t.failing.sum())
	for key, r := range t.keys {
		if r.past != nil && r.past.failure != nil {
			failed = append(failed, failedKey[K]{key, r.past.failure})
		}
	}
	return failed
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

// sweep clears records that no longer matter, if there are many. over clears a copy of each,
// without the lock. Parts that change meanwhile stay.
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
			if after.fight != before.fight && r.fight == before.fight {
				r.fight = nil
			}
		})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweepAt = max(firstSweep, 2*len(t.keys))
}

// forgetFights forgets the fights that are over. They may keep whole objects.
func (t *records[K]) forgetFights(now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.fights {
		if r := t.keys[key]; r.fight.over(now) {
			r.fight = nil
			t.storeLocked(key, r)
		}
	}
}
