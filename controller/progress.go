// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

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
	slots, completed, moved := c.workers.progress()
	now := c.now()
	p := Progress{Ready: c.queue.Len().Ready}
	var longest *running[K]
	for _, s := range slots {
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
	if p.Ready > 0 && moved > 0 && !c.queue.Len().AllPaused {
		p.Stalled = now - max(moved, completed)
	}
	return p
}

// Running returns, in words, the keys whose Reconcile runs, and for how long, that which has run for longest first.
func (c *Controller[K]) Running() []string {
	slots, _ := c.workers.all()
	now := c.now()
	var runs []*running[K]
	for _, s := range slots {
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
	slots, _ := c.workers.all()
	for _, s := range slots {
		r := s.run.Load()
		if r == nil { // nor is it known yet which goroutine it is
			continue
		}
		head := string(s.goroutine) // "goroutine 17 "
		if strings.HasPrefix(stack, head) || strings.Contains(stack, " in "+strings.TrimSpace(head)+"\n") {
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
	return errors.Join(c.named(c.inputs.catchUp(ctx))...)
}

// Quiet waits for a moment at which no key is ready, held or parked, as workqueue.Queue.Quiet says in full, and returns how many
// keys had been taken then. If ctx ends before, the error says what is in the way.
func (c *Controller[K]) Quiet(ctx context.Context) (taken uint64, err error) {
	taken, err = c.queue.Quiet(ctx)
	if err == nil {
		return taken, nil
	}
	if leading, _ := c.workers.leads(); !leading {
		err = fmt.Errorf("it does not lead, so that nobody takes its keys: %w", err)
	}
	return taken, fmt.Errorf("controller %q: %w", c.name, err)
}
