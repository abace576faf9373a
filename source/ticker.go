// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Ticker looks at something that brings no events, such as a cloud's API: it calls poll at once and then at the given interval,
// jittered by ±10 %, and delivers the keys that poll returns. It is synced when poll has succeeded once.
//
// Two polls never overlap: ticks that come while one is running are skipped and counted, in State's Dropped and by the hook. A
// poll that fails or panics is tried again after 1 second, then 2, and so on, up to the interval; State and Stale say so. Unlike
// other sources, a stop waits for poll: it must heed its context.
func Ticker[K comparable](name string, every time.Duration, poll func(ctx context.Context) ([]K, error)) Source[K] {
	return &ticker[K]{
		name: name, every: every, poll: poll, drops: newDrops("the poll before was still running"),
		synced: make(chan struct{}), settled: make(chan struct{}), ended: make(chan struct{}),
	}
}

// firstPollRetry is after how long a poll that failed is tried again the first time.
const firstPollRetry = time.Second

type ticker[K comparable] struct {
	name    string
	every   time.Duration
	poll    func(ctx context.Context) ([]K, error)
	drops   *drops
	ran     atomic.Bool
	synced  chan struct{} // closed when poll has succeeded
	settled chan struct{} // closed when poll has returned
	ended   chan struct{} // closed by Run

	mu      sync.Mutex // guards what follows
	err     error      // of the last poll
	failed  int        // polls in a row
	polling bool
	polled  run.Barrier // until the poll that runs was delivered
}

func (t *ticker[K]) Validate() error {
	switch {
	case t.name == "":
		return errors.New("source.Ticker: give it a name")
	case t.every < time.Millisecond:
		return fmt.Errorf("%s: an interval of %s, must be at least 1ms", t, t.every)
	case t.poll == nil:
		return fmt.Errorf("%s: give it a function that polls", t)
	}
	return nil
}

func (t *ticker[K]) Run(ctx context.Context, q Queue[K], h *hook.Source) error {
	if t.ran.Swap(true) {
		return errRan(t.String())
	}
	defer close(t.ended)
	if h == nil {
		h = &hook.Source{}
	}
	due := time.Now()
	for run.Sleep(ctx, time.Until(due)) == nil {
		t.setPolling(true)
		keys, err := t.ask(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			due = time.Now().Add(t.retry(err))
			if h.PollFailed != nil {
				h.PollFailed(hook.SourceFailure{Source: t.String(), Err: err})
			}
		default:
			t.deliver(q, keys)
			due = t.next(due, h)
		}
		t.setPolling(false)
	}
	return nil
}

func (t *ticker[K]) setPolling(polling bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.polling = polling
	if !polling {
		t.polled.Open()
	}
}

// ask calls poll. A panic is an error with its stack.
func (t *ticker[K]) ask(ctx context.Context) (keys []K, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return t.poll(ctx)
}

// retry takes a failure down, and returns after how long poll is to be tried again.
func (t *ticker[K]) retry(err error) time.Duration {
	t.mu.Lock()
	t.err = err
	t.failed++
	n := t.failed
	t.mu.Unlock()
	if !run.Closed(t.settled) {
		close(t.settled)
	}
	return min(t.every, workqueue.Exponential{Base: firstPollRetry, Max: time.Hour}.Delay(n))
}

func (t *ticker[K]) deliver(q Queue[K], keys []K) {
	how := workqueue.How{Reason: workqueue.Reason{Source: t.String(), Event: "poll"}}
	if !run.Closed(t.synced) {
		how.Class = workqueue.Background // as initial lists are
	}
	if len(keys) > 0 {
		q.AddAll(keys, how)
	}
	t.mu.Lock()
	t.err, t.failed = nil, 0
	t.mu.Unlock()
	for _, c := range []chan struct{}{t.synced, t.settled} {
		if !run.Closed(c) {
			close(c)
		}
	}
}

// next returns when the next tick is that is not past, after one that was due then.
func (t *ticker[K]) next(due time.Time, h *hook.Source) time.Time {
	due = due.Add(jittered(t.every))
	late := time.Since(due)
	if late <= 0 {
		return due
	}
	skipped := late/t.every + 1
	for range skipped {
		t.drops.add(0)
		if h.Dropped != nil {
			h.Dropped(hook.SourceDropped{Source: t.String(), Reason: t.drops.reasons[0]})
		}
	}
	return due.Add(skipped * t.every)
}

// jittered varies an interval by up to 10 %, so that replicas and sources do not keep in step.
func jittered(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()*0.2-0.1)*float64(d))
}

func (t *ticker[K]) WaitForSync(ctx context.Context) error {
	return wait(ctx, t.State, t.synced)
}

func (t *ticker[K]) Settled(ctx context.Context) error {
	return wait(ctx, t.State, t.settled)
}

func (t *ticker[K]) Stale() error {
	switch {
	case run.Closed(t.ended):
		return errStopped
	case !t.ran.Load():
		return errNotRunning
	case !run.Closed(t.settled):
		return errors.New("the first poll has not returned yet")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return fmt.Errorf("the last %d polls failed: %w", t.failed, t.err)
	}
	return nil
}

func (t *ticker[K]) State() State {
	s := State{Source: t.String(), Phase: hook.NotStarted, Dropped: t.drops.snapshot()}
	switch {
	case run.Closed(t.ended):
		s.Phase = hook.Stopped
	case !t.ran.Load():
	case !run.Closed(t.settled):
		s.Phase = hook.Syncing
	default:
		s.Phase = hook.Synced
		if s.Err = t.Stale(); s.Err != nil {
			s.Phase = hook.Failing
		}
	}
	return s
}

func (t *ticker[K]) String() string { return "Ticker(" + t.name + ")" }
