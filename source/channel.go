// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"

	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Channel is a source of events from elsewhere, for example a webhook or a message queue. It holds
// a bounded number of events. When it is full, [Channel.Send] waits, and [Channel.TrySend] drops
// the event. Both may be called from any goroutine, even before and after Run.
//
// The handler gets events one by one, in order. A failed event is retried with backoff while others
// go on, and keeps its place in the channel. When Run ends, the remaining events are dropped.
//
// Keys get class Normal and no delay. To choose, add keys to the controller's Queue. RequeueAll
// does not send events again.
type Channel[E any, K comparable] struct {
	base // its mutex guards the last group of fields

	keys  func(ctx context.Context, event E) ([]K, error)
	room  chan struct{} // one element per event in the channel
	wrong error         // the result of Validate
	order *workqueue.Queue[*held[E]]

	over     bool
	pending  int
	retrying int         // included in pending
	failure  error       // of the last event that failed
	empty    run.Barrier // when nothing is pending
}

type held[E any] struct {
	event  E
	failed bool
}

// Reasons for which a channel drops an event.
const (
	dropFull = iota
	dropStopped
)

// NewChannel makes a source that holds up to size events, at least 1. The name is for reports and
// must not be empty. keys returns the keys that an event makes due, and should not block. After an
// error the event is retried. Validate reports wrong arguments.
func NewChannel[E any, K comparable](name string, size int, keys func(ctx context.Context, event E) ([]K, error)) *Channel[E, K] {
	c := &Channel[E, K]{
		keys: keys, room: make(chan struct{}, max(size, 1)), order: newOrder[*held[E]]("events"),
	}
	c.init("Channel("+name+")", newDrops("the channel is full", "the source has stopped"), c)
	switch {
	case name == "":
		c.wrong = errors.New("source.NewChannel: the name is empty")
	case size < 1:
		c.wrong = fmt.Errorf("%s: the size is %d, must be at least 1", c, size)
	case keys == nil:
		c.wrong = fmt.Errorf("%s: keys is nil; give a function that returns the keys of an event", c)
	}
	return c
}

// Send adds an event. It waits while the channel is full. If ctx ends or the source has stopped, it
// returns an error and does not take the event.
func (c *Channel[E, K]) Send(ctx context.Context, event E) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: not sent: %w", c, context.Cause(ctx))
	}
	select {
	case c.room <- struct{}{}:
	case <-c.status.ended:
		return fmt.Errorf("%s: not sent: %w", c, errStopped)
	case <-ctx.Done():
		return fmt.Errorf("%s: not sent: the channel is full: %w", c, context.Cause(ctx))
	}
	if !c.hold(event) {
		return fmt.Errorf("%s: not sent: %w", c, errStopped)
	}
	return nil
}

// TrySend adds an event if there is room, and reports whether it did. State counts the others.
func (c *Channel[E, K]) TrySend(event E) bool {
	select {
	case c.room <- struct{}{}:
	default:
		c.drop(dropFull)
		return false
	}
	if !c.hold(event) {
		c.drop(dropStopped)
		return false
	}
	return true
}

func (c *Channel[E, K]) hold(event E) bool {
	c.mu.Lock()
	over := c.over
	if !over {
		c.pending++
	}
	c.mu.Unlock()
	if over {
		<-c.room
		return false
	}
	c.order.Add(&held[E]{event: event})
	return true
}

// Run implements Source.
func (c *Channel[E, K]) Run(ctx context.Context, to Sink[K]) error {
	if err := c.begin(to.Observer); err != nil {
		return err
	}
	defer c.close()
	c.status.SetSynced()
	handleAll(ctx, c.order, func(h *held[E]) error { return c.handle(ctx, to, h) })
	return nil
}

func (c *Channel[E, K]) handle(ctx context.Context, to Sink[K], h *held[E]) error {
	keys, err := c.ask(ctx, h.event)
	switch {
	case err != nil && ctx.Err() != nil:
		return err // because of the stop
	case err != nil:
		c.report("", err)
	case len(keys) > 0:
		to.Queue.AddAll(keys, workqueue.AddOptions{Reason: workqueue.Reason{Source: c.name, Event: "event"}})
	}
	c.handled(h, err)
	if err == nil {
		<-c.room
	}
	return err
}

func (c *Channel[E, K]) ask(ctx context.Context, event E) (keys []K, err error) {
	defer run.Recover(&err)
	return c.keys(ctx, event)
}

func (c *Channel[E, K]) handled(h *held[E], failure error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.failed {
		c.retrying--
	}
	h.failed = failure != nil
	if h.failed {
		c.retrying++
		c.failure = failure
		return
	}
	c.pending--
	if c.pending == 0 {
		c.empty.Open()
	}
}

func (c *Channel[E, K]) close() {
	c.order.ShutDown()
	c.mu.Lock()
	n := c.pending
	c.over, c.pending, c.retrying = true, 0, 0
	c.mu.Unlock()
	close(c.status.ended)
	for range n {
		<-c.room
		c.drop(dropStopped)
	}
}

// Validate returns an error if an argument of NewChannel is wrong.
func (c *Channel[E, K]) Validate() error { return c.wrong }

func (c *Channel[E, K]) state() State {
	s := c.base.state()
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Pending, s.Retrying = c.pending, c.retrying
	if s.Retrying > 0 {
		s.Failure = c.failure
	}
	return s
}

// CatchUp returns nil once each event sent before the call has been handled. If ctx ends first, the
// error has the state.
func (c *Channel[E, K]) CatchUp(ctx context.Context) error {
	c.mu.Lock()
	empty := c.empty.When(c.pending == 0)
	c.mu.Unlock()
	return c.status.await(ctx, c.status.ended, empty)
}
