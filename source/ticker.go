// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Ticker polls a system without events, such as a cloud's API. It calls poll at once and then every
// interval, at least 1 ms, with a jitter of ±10 %. It delivers the keys that poll returns: in class
// Background for the first successful poll, which syncs the source, and then Normal. To choose, add
// keys to the controller's Queue. RequeueAll does not poll.
//
// Polls never overlap: ticks during a poll count as dropped. After an error or a panic, poll is
// retried after 1 second, then 2, and so on, up to the interval. Run waits for a poll in progress:
// poll must heed its context.
func Ticker[K comparable](name string, every time.Duration, poll func(ctx context.Context) ([]K, error)) Source[K] {
	t := &ticker[K]{
		lifecycle: newLifecycle("Ticker("+name+")", newDrops("the poll before was still running")),
		every:     every, poll: poll, settled: make(chan struct{}),
	}
	t.state = t.State
	return t
}

const firstPollRetry = time.Second

type ticker[K comparable] struct {
	lifecycle // its mutex guards the last group of fields

	every   time.Duration
	poll    func(ctx context.Context) ([]K, error)
	settled chan struct{} // closed when poll has returned once

	err     error // of the last poll
	failed  int   // polls in a row
	polling bool
	polled  run.Barrier // opens when no poll is in progress
}

func (t *ticker[K]) Validate() error {
	switch {
	case t.name == "Ticker()":
		return errors.New("source.Ticker: the name is empty")
	case t.every < time.Millisecond:
		return fmt.Errorf("%s: the interval is %s, must be at least 1ms", t, t.every)
	case t.poll == nil:
		return fmt.Errorf("%s: poll is nil; give a function that returns keys", t)
	}
	return nil
}

func (t *ticker[K]) Run(ctx context.Context, q Queue[K], h *hook.Source) error {
	if err := t.begin(h); err != nil {
		return err
	}
	defer close(t.ended)
	due := time.Now()
	for run.Sleep(ctx, time.Until(due)) == nil {
		t.setPolling(true)
		keys, err := t.ask(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			due = time.Now().Add(t.retry(err))
			if h := t.hooks.Load(); h.PollFailed != nil {
				h.PollFailed(hook.SourceFailure{Source: t.name, Err: err})
			}
		default:
			t.deliver(q, keys)
			due = t.next(due)
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

func (t *ticker[K]) ask(ctx context.Context) (keys []K, err error) {
	defer run.Recover(&err)
	return t.poll(ctx)
}

func (t *ticker[K]) retry(err error) time.Duration {
	n := t.returned(err)
	return min(t.every, workqueue.Exponential{Base: firstPollRetry, Max: time.Hour}.Delay(n))
}

func (t *ticker[K]) deliver(q Queue[K], keys []K) {
	how := workqueue.AddOptions{Reason: workqueue.Reason{Source: t.name, Event: "poll"}}
	if !run.Closed(t.synced) {
		how.Class = workqueue.Background // as initial lists are
	}
	if len(keys) > 0 {
		q.AddAll(keys, how)
	}
	t.returned(nil)
	if !run.Closed(t.synced) {
		close(t.synced)
	}
}

func (t *ticker[K]) returned(err error) (failed int) {
	if !run.Closed(t.settled) {
		defer close(t.settled)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed++
	if err == nil {
		t.failed = 0
	}
	t.err = err
	return t.failed
}

// next returns the first tick after due that has not passed.
func (t *ticker[K]) next(due time.Time) time.Time {
	due = due.Add(jittered(t.every))
	late := time.Since(due)
	if late <= 0 {
		return due
	}
	skipped := late/t.every + 1
	for range skipped {
		t.drop(0)
	}
	return due.Add(skipped * t.every)
}

// jittered varies an interval by 10 %, so that replicas and sources do not run in step.
func jittered(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()*0.2-0.1)*float64(d))
}

func (t *ticker[K]) Settled(ctx context.Context) error { return t.wait(ctx, t.settled) }

func (t *ticker[K]) Stale() error {
	if run.Closed(t.ended) || !run.Closed(t.settled) {
		return t.lifecycle.Stale()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return fmt.Errorf("the last %d polls failed: %w", t.failed, t.err)
	}
	return nil
}

func (t *ticker[K]) State() State {
	s := State{Source: t.name, Phase: t.phase(), Dropped: t.drops.snapshot()}
	if s.Phase != hook.Stopped && run.Closed(t.settled) {
		s.Phase = hook.Synced
		if s.Err = t.Stale(); s.Err != nil {
			s.Phase = hook.Failing
		}
	}
	return s
}

func (t *ticker[K]) CatchUp(ctx context.Context) error {
	if err := t.await(ctx, t.ended, t.settled); err != nil {
		return err
	}
	t.mu.Lock()
	polled := t.polled.When(!t.polling)
	t.mu.Unlock()
	return t.await(ctx, t.ended, polled)
}
