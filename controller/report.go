// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Report describes a controller for health checks, and for a stop that takes too long.
type Report struct {
	Name string
	// Unsynced describes each source and Readable that is not synced.
	Unsynced []string
	// RequireKinds is Options.RequireKinds. If true, a manager is neither ready nor a candidate for
	// the Lease before Synced.
	RequireKinds bool
	// Running describes each key in progress and its duration, longest first.
	Running  []string
	Progress Progress
}

// Report takes time proportional to the numbers of workers and sources.
func (c *Controller[K]) Report() Report {
	r := Report{Name: c.name, Unsynced: c.inputs.unsynced(), RequireKinds: c.o.RequireKinds, Progress: c.progress()}
	now := c.now()
	for _, running := range c.pool.state().running() {
		r.Running = append(r.Running, fmt.Sprintf("%v for %s", running.item.Key(), (now-running.since).Round(time.Millisecond)))
	}
	return r
}

// CheckProgress returns an error if Progress.Stalled has reached the limit. The error names the
// longest running Reconcile. The limit must be positive and longer than any Reconcile. A liveness
// probe with this check also restarts a process that only waits for something slow.
func (r Report) CheckProgress(limit time.Duration) error {
	p := r.Progress
	if limit <= 0 {
		return fmt.Errorf("controller %q: CheckProgress: the limit is %s, must be positive", r.Name, limit)
	}
	if p.Stalled < limit {
		return nil
	}
	longest := "none is running"
	if p.Running > 0 {
		longest = fmt.Sprintf("the Reconcile of %s has run since %s", p.LongestKey, time.Now().Add(-p.Longest).Format(time.RFC3339))
	}
	return fmt.Errorf("controller %q: keys are ready (%d) and no Reconcile has begun or completed for %s; %s", r.Name, p.Ready, p.Stalled, longest)
}

// Idle describes a controller at a moment without work in progress.
type Idle struct {
	// Taken is the number of keys that workers have taken, each time counted.
	Taken uint64
	// Failing are the keys whose last Reconcile failed, sorted by their text: those in a backoff,
	// and those that are not retried.
	Failing []FailedKey
}

// FailedKey is a key whose last Reconcile failed.
type FailedKey struct {
	Key string // its text
	Failure
}

// WaitIdle waits until the sources have handled everything that the API server had at the call, and
// the declared Readables show it, and then for a moment without work in progress: see
// [workqueue.Queue.Quiet]. If ctx ends before, the error names what is missing or left. A source or
// Readable without a method CatchUp only has to be settled. With Options.Partition, WaitIdle also
// waits until the controller serves the slots that the process owned at the call, if it leads.
//
// WaitIdle sends list requests: use it in tests and scripts. If a second call returns the same
// Taken, the controller had nothing to do between the two calls.
func (c *Controller[K]) WaitIdle(ctx context.Context) (Idle, error) {
	wrong := c.catchUp(ctx)
	taken, err := c.quiet(ctx)
	return Idle{taken, c.failing()}, errors.Join(wrong, err)
}

func (c *Controller[K]) catchUp(ctx context.Context) error {
	err := c.inputs.catchUp(ctx)
	if d := c.shards.of.Load(); d != nil && err == nil {
		err = d.catchUp(ctx, func() bool { return c.pool.state().leading })
	}
	return c.named(err)
}

func (c *Controller[K]) quiet(ctx context.Context) (taken uint64, err error) {
	c.current.do(func(q *workqueue.Queue[K]) { taken, err = q.Quiet(ctx) })
	if err == nil {
		return taken, nil
	}
	if !c.pool.state().leading {
		err = fmt.Errorf("it does not lead, so no worker takes its keys: %w", err)
	}
	return taken, fmt.Errorf("controller %q: %w", c.name, err)
}

// failing leaves out keys whose next Reconcile has begun.
func (c *Controller[K]) failing() []FailedKey {
	var failing []FailedKey
	for key, r := range c.records.all() {
		if r.past != nil && r.past.failure != nil {
			failing = append(failing, FailedKey{fmt.Sprint(key), *r.past.failure})
		}
	}
	sort.Slice(failing, func(i, j int) bool { return failing[i].Key < failing[j].Key })
	return failing
}

func (c *Controller[K]) stats() hook.ControllerStats {
	now := c.pool.state()
	running := now.running()
	s := hook.ControllerStats{Workers: now.want, Active: len(running)}
	if !now.leading {
		return s
	}
	count := func(last *lastRun) {
		if last != nil && last.failure != nil {
			s.Failing++
		}
	}
	for _, r := range running {
		count(r.past)
	}
	for _, r := range c.records.all() {
		count(r.past)
	}
	return s
}
