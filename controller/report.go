// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Report describes a controller for health checks, for the page of package debug, and for a stop
// that takes too long.
type Report struct {
	Name string
	// Leading reports whether Lead runs. Workers is their limit, on a standby too.
	Leading bool
	Workers int
	Queue   workqueue.Len
	// ReadyByClass counts the ready keys of each class.
	ReadyByClass map[workqueue.Class]int
	// Took counts the Reconciles that have returned.
	Took Durations
	// Requests counts the requests to API servers of these Reconciles.
	Requests uint64
	// Failing has the numbers of failing keys by reason, as hook.ControllerStats.
	Failing map[string]int
	// Unsynced describes each source and Readable that is not synced.
	Unsynced []string
	// RequireKinds is Options.RequireKinds. If true, a manager is neither ready nor a candidate for
	// the Lease before Synced.
	RequireKinds bool
	// Deadline is Options.Deadline.
	Deadline time.Duration
	// Running describes each key in progress and its duration, longest first.
	Running  []string
	Progress Progress
}

// Report takes time proportional to the numbers of workers and sources.
func (c *Controller[K]) Report() Report {
	pool, stats := c.pool.state(), c.stats()
	r := Report{
		Name: c.name, Unsynced: c.inputs.unsynced(), RequireKinds: c.o.RequireKinds, Deadline: c.o.Deadline, Progress: c.progress(),
		Leading: pool.leading, Workers: pool.want, Queue: c.current.Load().Len(), Failing: stats.Failing,
		ReadyByClass: c.current.Load().ReadyByClass(), Took: c.pool.took.load(), Requests: c.pool.requests.Load(),
	}
	now := c.now()
	for _, running := range pool.running() {
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

	// Attempts is the number of failures in a row. After a terminal error it is 1.
	Attempts int
	// Next is when the next attempt is due. Of a key that is ready, it is when the key became so;
	// of a key in progress, the start. It is zero if the key waits for an event, or is paused.
	Next time.Time
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
	return Idle{taken, c.Failing()}, errors.Join(wrong, err)
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

// Failing returns the keys whose last Reconcile failed, sorted by their text: those in a backoff,
// those that are not retried, and those that are being retried. While the controller does not lead,
// there are none. For a million failing keys it takes about four seconds and 300 MB.
func (c *Controller[K]) Failing() []FailedKey {
	pool := c.pool.state()
	if !pool.leading {
		return nil
	}
	running := map[K]*running[K]{}
	for _, r := range pool.running() {
		running[r.item.Key()] = r
	}
	waiting := c.records.failed()
	keys := make([]FailedKey, 0, len(waiting)+len(running))
	for _, f := range waiting {
		keys = append(keys, c.describe(f, nil))
		delete(running, f.key) // it has failed again since it was read
	}
	for key, r := range running {
		if r.past != nil && r.past.failure != nil {
			keys = append(keys, c.describe(failedKey[K]{key, r.past.failure}, r))
		}
	}
	sort.Slice(keys, func(i, j int) bool { return keys[i].Key < keys[j].Key })
	return keys
}

// describe describes a failed key. by is its next Reconcile, or nil.
func (c *Controller[K]) describe(f failedKey[K], by *running[K]) FailedKey {
	now, _ := c.current.Load().Lookup(f.key)
	k := FailedKey{Key: fmt.Sprint(f.key), Failure: *f.failure, Attempts: max(now.Attempts, 1), Next: now.Due}
	switch {
	case by != nil:
		k.Next = c.began.Add(by.since)
	case now.Paused:
		k.Next = time.Time{}
	case now.State == workqueue.Ready:
		k.Next = cmp.Or(now.Since, time.Now())
	}
	return k
}

// stats counts a key whose next Reconcile runs as failing, until that has succeeded.
func (c *Controller[K]) stats() hook.ControllerStats {
	now := c.pool.state()
	running := now.running()
	failing := c.records.failures()
	for _, r := range running {
		failing.add(r.past, 1)
	}
	s := hook.ControllerStats{Workers: now.want, Active: len(running), Failing: make(map[string]int, len(failing))}
	for reason, n := range failing {
		if !now.leading {
			n = 0
		}
		s.Failing[string(reason)] = n
	}
	return s
}
