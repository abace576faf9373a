// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

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
	t := &ticker[K]{every: every, poll: poll}
	t.init("Ticker("+name+")", newDrops("the poll before was still running"), t)
	return t
}

const firstPollRetry = time.Second

type ticker[K comparable] struct {
	base // its mutex guards the last group of fields

	every  time.Duration
	poll   func(ctx context.Context) ([]K, error)
	failed int // polls in a row; used by Run

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

func (t *ticker[K]) Run(ctx context.Context, to Sink[K]) error {
	if err := t.begin(to.Observer); err != nil {
		return err
	}
	defer close(t.status.ended)
	due := time.Now()
	for run.Sleep(ctx, time.Until(due)) == nil {
		t.setPolling(true)
		keys, err := t.ask(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			t.failed++
			t.status.SetFailing(fmt.Errorf("the last %d polls failed: %w", t.failed, err))
			due = time.Now().Add(min(t.every, workqueue.Exponential{Base: firstPollRetry, Max: time.Hour}.Delay(t.failed)))
			if to.Observer != nil {
				to.Observer.PollFailed(err)
			}
		default:
			t.deliver(to, keys)
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

func (t *ticker[K]) deliver(to Sink[K], keys []K) {
	how := workqueue.AddOptions{Reason: workqueue.Reason{Source: t.name, Event: "poll"}}
	if !run.Closed(t.status.synced) {
		how.Class = workqueue.Background // as initial lists are
	}
	if len(keys) > 0 {
		to.Queue.AddAll(keys, how)
	}
	t.failed = 0
	t.status.SetSynced()
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

// CatchUp waits for a poll in progress.
func (t *ticker[K]) CatchUp(ctx context.Context) error {
	if err := t.status.await(ctx, t.status.ended, t.status.settled); err != nil {
		return err
	}
	t.mu.Lock()
	polled := t.polled.When(!t.polling)
	t.mu.Unlock()
	return t.status.await(ctx, t.status.ended, polled)
}
