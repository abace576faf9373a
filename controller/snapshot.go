// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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

// Snapshot returns the state of the controller. It copies the whole queue: use it for people and
// tests, not in a Reconcile.
func (c *Controller[K]) Snapshot() Snapshot[K] {
	workers := c.workers.now()
	s := Snapshot[K]{
		Name: c.name, Workers: workers.want, Leading: workers.leading, Term: workers.term,
		Progress: c.Progress(), Queue: c.queue.Snapshot(), OwnEvents: c.own.skipped.Load(),
	}
	s.Paused = s.Queue.Paused
	if what := c.consistency.inherited.waits.Load(); what != nil {
		s.TakingOver = *what
	}
	for _, w := range workers.slots {
		if r := w.run.Load(); r != nil {
			s.Running = append(s.Running, c.stateOf(r))
		}
	}
	for key, r := range c.records.all() {
		s.add(key, &r)
	}
	watches, reads := c.inputs.all()
	s.Sources = make([]source.State, len(watches))
	for i, w := range watches {
		s.Sources[i] = w.source.State()
	}
	for _, r := range reads {
		_, state := stateOf(r)
		s.Reads = append(s.Reads, Read{r.String(), state})
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
			p.By = append(p.By, b.text)
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

func (c *Controller[K]) stateOf(r *running[K]) Running[K] {
	limit, _ := c.o.limits()
	return Running[K]{
		Key: r.item.Key(), ReconcileID: reconcileID(c.run, r.item.Delivery()), Since: c.began.Add(r.since), Attempt: r.item.Attempt(),
		Slow: c.now()-r.since >= limit, Interrupted: c.records.look(r.item.Key()).interrupted, Reasons: r.item.Reasons(),
	}
}

// MarshalJSON writes the Snapshot, for package debug. It fails if encoding/json cannot write a K.
func (c *Controller[K]) MarshalJSON() ([]byte, error) { return json.Marshal(c.Snapshot()) }

func sortByKey[T, K any](list []T, key func(T) K) {
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(fmt.Sprint(key(a)), fmt.Sprint(key(b))) })
}

// Progress says whether a controller gets anything done.
type Progress struct {
	// Ready counts the keys that are ready to be reconciled, Running those that are being reconciled.
	Ready, Running int
	// LastCompleted is when a Reconcile returned the last time, in whichever way; zero: none has yet.
	LastCompleted time.Time `json:",omitzero"`
	// Stalled is for how long nothing has begun or returned although keys are ready. It is 0 if none are, while the controller does
	// not lead, and while it is paused.
	Stalled time.Duration
	// Longest is for how long the Reconcile runs that has run for longest, and LongestKey its key.
	Longest    time.Duration
	LongestKey string `json:",omitempty"`
}

// Progress returns how the controller gets on. It is cheap, but not for each Reconcile: it looks at each worker.
func (c *Controller[K]) Progress() Progress {
	workers, now := c.workers.now(), c.now()
	p := Progress{Ready: c.queue.Len().Ready}
	completed, moved := workers.completed, max(1, workers.resumed)
	var longest *running[K]
	for _, s := range workers.slots {
		completed = max(completed, time.Duration(s.completed.Load()))
		r := s.run.Load()
		if r == nil {
			continue
		}
		p.Running++
		moved = max(moved, r.since)
		if longest == nil || r.since < longest.since {
			p.Longest, longest = now-r.since, r
		}
	}
	if completed > 0 {
		p.LastCompleted = c.began.Add(completed)
	}
	if longest != nil {
		p.LongestKey = fmt.Sprint(longest.item.Key())
	}
	if p.Ready > 0 && workers.leading && !c.queue.AllPaused() {
		p.Stalled = now - max(moved, completed)
	}
	return p
}

// Running returns, in words, the keys whose Reconcile runs, and for how long, that which has run for longest first.
func (c *Controller[K]) Running() []string {
	now := c.now()
	var runs []*running[K]
	for _, s := range c.workers.now().slots {
		if r := s.run.Load(); r != nil {
			runs = append(runs, r)
		}
	}
	slices.SortFunc(runs, func(a, b *running[K]) int { return cmp.Compare(a.since, b.since) })
	texts := make([]string, 0, len(runs))
	for _, r := range runs {
		texts = append(texts, fmt.Sprintf("%v for %s", r.item.Key(), (now-r.since).Round(time.Millisecond)))
	}
	return texts
}

// Alive returns a check that fails while nothing has begun or completed for the limit although keys are ready (Progress.Stalled), with
// one sentence that says what holds the workers up. Nothing calls it unless the program does: a liveness probe that does has a process
// restarted whose workers hang, and with it also those that only wait for something that is slow. The limit must be longer than any
// Reconcile takes, and positive.
func (c *Controller[K]) Alive(limit time.Duration) func() error {
	return func() error {
		if limit <= 0 {
			return fmt.Errorf("controller %q: Alive was given a limit of %s, must be positive", c.name, limit)
		}
		p := c.Progress()
		if p.Stalled < limit {
			return nil
		}
		longest := "none runs"
		if p.Running > 0 {
			longest = fmt.Sprintf("that of %s runs since %s", p.LongestKey, time.Now().Add(-p.Longest).Format(time.RFC3339))
		}
		return fmt.Errorf("controller %q: keys are ready (%d) and no Reconcile has begun or completed for %s; %s", c.name, p.Ready, p.Stalled, longest)
	}
}

// Reconciles reports whether a Reconcile runs on the goroutine whose stack this is, as
// runtime.Stack has it, or has started that goroutine, and of which key. A manager calls it to find
// out who makes a request with a context that is not a Reconcile's.
func (c *Controller[K]) Reconciles(stack string) (key string, ok bool) {
	for _, s := range c.workers.now().slots {
		r := s.run.Load()
		if r == nil { // nor is it known yet which goroutine it is
			continue
		}
		if strings.HasPrefix(stack, s.goroutine) || strings.Contains(stack, " in "+strings.TrimSpace(s.goroutine)+"\n") {
			return fmt.Sprint(r.item.Key()), true
		}
	}
	return "", false
}

// Unsynced returns, in words, what the controller watches or Reads and is not synced, and where it stands. It is for people and
// health checks: it asks each of them.
func (c *Controller[K]) Unsynced() []string {
	return c.inputs.unsynced()
}

// CatchUp returns nil once everything that the API server had at the call, of what the controller watches or reads, has been
// handled by its sources, or shows in the local copy (see source.CatchingUp). If ctx ends before, the error names what is missing.
// A source, or something that is read, of a type that has no such method is only waited for until it is settled. It lists at the
// API server: it is for tests and scripts, as is [manager.Manager.Idle], which calls it.
//
// [manager.Manager.Idle]: https://pkg.go.dev/github.com/setpoint-dev/setpoint/manager#Manager.Idle
func (c *Controller[K]) CatchUp(ctx context.Context) error {
	return c.named(c.inputs.catchUp(ctx))
}

// Quiet waits for a moment at which no key is ready, held or parked, as workqueue.Queue.Quiet says in full, and returns how many
// keys had been taken then. If ctx ends before, the error says what is in the way.
func (c *Controller[K]) Quiet(ctx context.Context) (taken uint64, err error) {
	taken, err = c.queue.Quiet(ctx)
	if err == nil {
		return taken, nil
	}
	if !c.workers.now().leading {
		err = fmt.Errorf("it does not lead, so that nobody takes its keys: %w", err)
	}
	return taken, fmt.Errorf("controller %q: %w", c.name, err)
}
