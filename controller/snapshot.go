// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Snapshot is what a controller does and what keeps it from doing more. Each part is of one moment, but not all of the same one.
// Keys are in the order of their text.
type Snapshot[K comparable] struct {
	Name string
	// Workers is how many there are to be (see SetWorkers), Leading whether they may take keys in this term, Paused whether Pause
	// keeps them from it.
	Workers         int
	Leading, Paused bool
	// Term is the term of leadership (term.Term) under which it leads. Empty while it leads: there is none, and nothing keeps
	// another process from acting at the same time.
	Term       string
	Progress   Progress
	Running    []Running[K]
	PausedKeys []PausedKey[K]
	LogLevels  []LogLevel[K]
	// Awaiting are the keys that wait until their own writes are shown (C6).
	Awaiting []Awaiting[K]
	// TakingOver is what was written under the term before and is waited for before the first Reconcile of this one (L9).
	TakingOver string `json:",omitempty"`
	// LastErrors are how the keys failed whose last Reconcile did.
	LastErrors []LastError[K]
	// OwnEvents is how many events of keys' own writes have not ended a backoff so far (C7).
	OwnEvents int64
	Sources   []source.State
	// Reads is what was given to Reads, and where it stands.
	Reads []Read
	Queue workqueue.Snapshot[K]
}

// Running is a Reconcile that runs.
type Running[K comparable] struct {
	Key         K
	ReconcileID string
	// Since is when it began. Attempt counts from 1 after a success.
	Since   time.Time
	Attempt int
	// Slow says that it was reported as slow (C9), Interrupted how often in a row the key was interrupted before.
	Slow        bool
	Interrupted int `json:",omitzero"`
	// Reasons are why the key was due.
	Reasons []workqueue.Reason
}

// Read is something that the controller reads without watching it, and where it stands, in words.
type Read struct{ What, State string }

// PausedKey is a key that is paused, and by whom: PauseKey, or annotations.
type PausedKey[K comparable] struct {
	Key K
	By  []string
}

// LogLevel is the level that SetLogLevel gave a key.
type LogLevel[K comparable] struct {
	Key   K
	Level slog.Level
}

// Awaiting is a key that waits until its own writes are shown.
type Awaiting[K comparable] struct {
	Key K
	// Since is when it was first put off, For what it waits.
	Since time.Time
	For   string
}

// LastError is how the last Reconcile of a key failed.
type LastError[K comparable] struct {
	Key K
	Failure
}

// Snapshot returns a Snapshot[K], all of which encoding/json can write if it can write a K. It is what package debug serves. It
// copies the whole queue: it is for people and tests, not for each Reconcile.
func (c *Controller[K]) Snapshot() any {
	s := Snapshot[K]{Name: c.name, Progress: c.Progress(), Sources: c.Sources(), Queue: c.queue.Snapshot(), OwnEvents: c.own.skipped.Load()}
	s.Paused = s.Queue.Paused
	if what := c.consistency.takingOver.Load(); what != nil {
		s.TakingOver = *what
	}
	var slots []*slot[K]
	slots, s.Workers = c.workers.all()
	s.Leading, s.Term = c.workers.leads()
	for _, w := range slots {
		if r, ok := c.runningOn(w); ok {
			s.Running = append(s.Running, r)
		}
	}
	for key, r := range c.records.all() {
		s.add(key, &r)
	}
	_, reads := c.inputs.all()
	for _, r := range reads {
		s.Reads = append(s.Reads, Read{r.String(), stateOf(r)})
	}
	sortByKey(s.Running, func(r Running[K]) K { return r.Key })
	sortByKey(s.PausedKeys, func(p PausedKey[K]) K { return p.Key })
	sortByKey(s.LogLevels, func(l LogLevel[K]) K { return l.Key })
	sortByKey(s.Awaiting, func(a Awaiting[K]) K { return a.Key })
	sortByKey(s.LastErrors, func(e LastError[K]) K { return e.Key })
	return s
}

// add adds what the controller remembers of a key.
func (s *Snapshot[K]) add(key K, r *record[K]) {
	if len(r.pausedBy) > 0 {
		p := PausedKey[K]{Key: key}
		for _, b := range r.pausedBy {
			p.By = append(p.By, b.String())
		}
		slices.Sort(p.By)
		s.PausedKeys = append(s.PausedKeys, p)
	}
	if r.level != nil {
		s.LogLevels = append(s.LogLevels, LogLevel[K]{key, *r.level})
	}
	if r.past == nil {
		return
	}
	if !r.past.since.IsZero() {
		s.Awaiting = append(s.Awaiting, Awaiting[K]{key, r.past.since, r.past.missing})
	}
	if r.past.failure != nil {
		s.LastErrors = append(s.LastErrors, LastError[K]{key, *r.past.failure})
	}
}

// runningOn returns what a worker does, if it does anything.
func (c *Controller[K]) runningOn(s *slot[K]) (Running[K], bool) {
	r := s.run.Load()
	if r == nil {
		return Running[K]{}, false
	}
	limit, _ := c.watchdog.limits()
	reasons, _ := r.item.Reasons()
	return Running[K]{
		Key: r.item.Key(), ReconcileID: reconcileID(c.run, r.item.Delivery()), Since: c.began.Add(r.since), Attempt: r.item.Attempt(),
		Slow: c.now()-r.since >= limit, Interrupted: c.records.look(r.item.Key()).interrupted, Reasons: reasons,
	}, true
}

func sortByKey[T, K any](list []T, key func(T) K) {
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(fmt.Sprint(key(a)), fmt.Sprint(key(b))) })
}
