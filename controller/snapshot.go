// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"sort"
	"time"

	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Snapshot is the state of a controller. Each part is consistent, but the parts may be from
// different moments. Keys are sorted by their text.
type Snapshot[K comparable] struct {
	Name            string
	Workers         int  // as set by Options.Workers
	Leading, Paused bool // Leading: Lead runs; Paused: see Pause
	// Term is the token of the term of leadership. If it is empty while Leading, another process
	// may act at the same time.
	Term     string
	Progress Progress
	Running  []Running[K]
	Keys     []KeyRecord[K] // those that have a record
	// TakingOver is a write of the previous leader that the first Reconcile waits for.
	TakingOver string `json:",omitempty"`
	// OwnEvents counts events of keys' own writes that did not end a backoff.
	OwnEvents int64
	// Slots is how many slots the controller serves, with Options.Partition. Else it is nil.
	Slots   *int `json:",omitempty"`
	Sources []source.State
	Reads   []Read
	Queue   workqueue.Snapshot[K]
}

// Running is a Reconcile in progress.
type Running[K comparable] struct {
	Key         K
	ReconcileID string    // as in the log
	Since       time.Time // its start
	Attempt     int       // 1 after a success
	Class       workqueue.Class
	Tenant      string `json:",omitempty"`
	Slow        bool   // longer than SlowAfter or the deadline
	Interrupted int    `json:",omitzero"` // interruptions in a row before
	Reasons     []workqueue.Reason
}

// Read is a Readable that was passed to Reads, with its state in words.
type Read struct{ What, State string }

// KeyRecord is what a controller remembers of a key. The queue has more: see Snapshot.Queue.
type KeyRecord[K comparable] struct {
	Key      K
	PausedBy []string    `json:",omitempty"` // PauseKey or annotations
	LogLevel *slog.Level `json:",omitempty"` // as set by SetLogLevel
	// Awaits is what its caches do not show yet of its own writes. It waits since AwaitsSince.
	Awaits      string    `json:",omitempty"`
	AwaitsSince time.Time `json:",omitzero"`
	// LastError is the failure of its last Reconcile, or nil.
	LastError *Failure `json:",omitempty"`
}

// Snapshot returns the state of the controller. It copies the whole queue: use it for debugging and
// tests.
func (c *Controller[K]) Snapshot() Snapshot[K] {
	pool := c.pool.state()
	s := Snapshot[K]{
		Name: c.name, Workers: pool.want, Leading: pool.leading, Term: pool.term,
		Progress: c.progress(), Queue: c.current.Load().Snapshot(), OwnEvents: c.ownEvents.Load(),
	}
	s.Paused = s.Queue.Paused
	if d := c.shards.of.Load(); d != nil {
		s.Slots = new(d.count())
	}
	if what := c.consistency.inherited.waits.Load(); what != nil {
		s.TakingOver = *what
	}
	for _, r := range pool.running() {
		s.Running = append(s.Running, c.stateOf(r))
	}
	for key, r := range c.records.all() {
		s.Keys = append(s.Keys, r.show(key)...)
	}
	s.Sources = []source.State{}
	for _, i := range c.inputs.all() {
		if i.source != nil {
			s.Sources = append(s.Sources, watched{i.source.Status(), i.source}.state())
			continue
		}
		_, state := stateOf(i.Readable)
		s.Reads = append(s.Reads, Read{i.String(), state})
	}
	sortByKey(s.Running, func(r Running[K]) K { return r.Key })
	sortByKey(s.Keys, func(k KeyRecord[K]) K { return k.Key })
	return s
}

// show returns nil if the record has nothing for people.
func (r *record[K]) show(key K) []KeyRecord[K] {
	k := KeyRecord[K]{Key: key, PausedBy: textsOf(r.pausedBy), LogLevel: r.level}
	if r.past != nil {
		k.AwaitsSince, k.LastError = r.past.since, r.past.failure
	}
	if !k.AwaitsSince.IsZero() {
		k.Awaits = r.past.missing
	}
	if k.PausedBy == nil && k.LogLevel == nil && k.LastError == nil && k.AwaitsSince.IsZero() {
		return nil
	}
	return []KeyRecord[K]{k}
}

func (c *Controller[K]) stateOf(r *running[K]) Running[K] {
	limit, _ := c.o.limits()
	reasons, _ := r.item.Reasons()
	return Running[K]{
		Key: r.item.Key(), ReconcileID: r.id(), Since: c.began.Add(r.since), Attempt: r.item.Attempt(),
		Class: r.item.Class(), Tenant: r.item.Tenant(), Slow: c.now()-r.since >= limit, Interrupted: c.records.look(r.item.Key()).interrupted, Reasons: reasons,
	}
}

// MarshalJSON encodes the Snapshot. It fails if encoding/json cannot encode a K.
func (c *Controller[K]) MarshalJSON() ([]byte, error) { return json.Marshal(c.Snapshot()) }

// sortByKey uses sort.Slice, which is compiled once. slices.SortFunc would be compiled for each T,
// in each package that creates a controller.
func sortByKey[T, K any](list []T, key func(T) K) {
	sort.Slice(list, func(i, j int) bool { return fmt.Sprint(key(list[i])) < fmt.Sprint(key(list[j])) })
}

// Progress describes whether a controller makes progress.
type Progress struct {
	Ready, Running int // numbers of keys
	// LastCompleted is when a Reconcile last returned, or zero.
	LastCompleted time.Time `json:",omitzero"`
	// Stalled is how long no Reconcile has begun or returned although keys are ready. It is 0 while
	// the controller does not lead or is paused.
	Stalled time.Duration
	// Longest is how long the longest running Reconcile has run; LongestKey is its key.
	Longest    time.Duration
	LongestKey string `json:",omitempty"`
}

// progress takes time proportional to the number of workers.
func (c *Controller[K]) progress() Progress {
	pool, now := c.pool.state(), c.now()
	runs := pool.running()
	queue := c.current.Load().Len()
	p := Progress{Ready: queue.Ready, Running: len(runs)}
	completed, moved := time.Duration(c.pool.completed.Load()), pool.resumed
	if len(runs) > 0 {
		p.Longest, p.LongestKey = now-runs[0].since, fmt.Sprint(runs[0].item.Key())
		moved = max(moved, runs[len(runs)-1].since)
	}
	if completed > 0 {
		p.LastCompleted = c.began.Add(completed)
	}
	if p.Ready > 0 && pool.leading && !queue.AllPaused {
		if len(runs) < pool.want { // a worker is about to take a key that has just become ready
			ready := c.current.Load().ReadySince()
			if ready.IsZero() { // it has
				return p
			}
			moved = max(moved, ready.Sub(c.began))
		}
		p.Stalled = max(0, now-max(moved, completed))
	}
	return p
}
