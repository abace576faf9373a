// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/ledger"
)

// past is what the last Reconcile of a key left behind: writes that informers may not show yet, and
// how it ended if that was no success. Most Reconciles leave nothing. It does not change while it is
// in the journal.
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
	// At is when.
	At time.Time
	// ReconcileID is the one in the log.
	ReconcileID string
	// Err is what went wrong.
	Err string
	// Terminal says that the key is not retried.
	Terminal bool
}

// journal has the past of keys.
type journal[K comparable] struct {
	n atomic.Int64 // how many there are: most controllers most of the time have none

	mu      sync.Mutex // guards what follows
	keys    map[K]*past
	sweepAt int
}

const firstSweep = 256

// take removes a key's past, and returns a copy of it; nil if there is none.
func (j *journal[K]) take(key K) *past {
	if j.n.Load() == 0 {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.keys[key]
	if p == nil {
		return nil
	}
	delete(j.keys, key)
	j.n.Store(int64(len(j.keys)))
	now := *p // a sweep may be looking at it
	return &now
}

// put keeps a key's past. It says whether there are so many now that a sweep is worth its time.
func (j *journal[K]) put(key K, p *past) (sweep bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.keys == nil {
		j.keys, j.sweepAt = map[K]*past{}, firstSweep
	}
	j.keys[key] = p
	j.n.Store(int64(len(j.keys)))
	if len(j.keys) < j.sweepAt {
		return false
	}
	j.sweepAt *= 2 // until swept has set it
	return true
}

// look returns a key's past, which must not be changed.
func (j *journal[K]) look(key K) *past {
	if j.n.Load() == 0 {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.keys[key]
}

// sweep drops the pasts that are over. It calls over without the lock.
func (j *journal[K]) sweep(over func(*past) bool) {
	for key, p := range j.all() {
		if over(p) {
			j.drop(key, p)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sweepAt = max(firstSweep, 2*len(j.keys))
}

func (j *journal[K]) drop(key K, p *past) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.keys[key] == p {
		delete(j.keys, key)
		j.n.Store(int64(len(j.keys)))
	}
}

func (j *journal[K]) all() map[K]*past {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.keys)
}
