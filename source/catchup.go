// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// CatchingUp is what a Source may be besides: each of this package is. It is for tests and scripts, which wait until all that they
// have changed has made its keys due.
type CatchingUp interface {
	// CatchUp returns nil once the source has handled all that there was at the call. For Kind that is what the API server had
	// (see cache.Subscription.CatchUp), and failed events that are to be tried again; for a Channel what it holds; for a Ticker a poll
	// that runs. A Kind whose kind is not served has nothing to handle. If ctx ends before, the error says what is missing; that
	// a source has stopped, or is an Informer, which no API server can be asked about, is said at once.
	CatchUp(ctx context.Context) error
}

// CatchUp implements CatchingUp.
func (k *kind[T, K]) CatchUp(ctx context.Context) error { return k.feed.catchUp(ctx, k.State) }

// CatchUp implements CatchingUp.
func (i *informerSource[T, K]) CatchUp(ctx context.Context) error {
	return i.feed.catchUp(ctx, i.State)
}

// CatchUp implements subscription.
func (r *registration) CatchUp(context.Context) error {
	return errors.New("an informer that no cache knows of cannot be compared with what the API server has: give it to cache.Adopt, and the handle to source.Kind")
}

// CatchUp implements CatchingUp.
func (c *Channel[E, K]) CatchUp(ctx context.Context) error {
	return await(ctx, c.State, c.ended, c.whenEmpty())
}

// whenEmpty returns a channel that is closed once nothing is held.
func (c *Channel[E, K]) whenEmpty() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.events) == 0 {
		return closedChannel()
	}
	if c.empty == nil {
		c.empty = make(chan struct{})
	}
	return c.empty
}

// CatchUp implements CatchingUp.
func (t *ticker[K]) CatchUp(ctx context.Context) error {
	if err := await(ctx, t.State, t.ended, t.settled); err != nil {
		return err
	}
	return await(ctx, t.State, t.ended, t.whenPolled())
}

// whenPolled returns a channel that is closed once no poll runs.
func (t *ticker[K]) whenPolled() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.polled == nil {
		return closedChannel()
	}
	return t.polled
}

// await waits for done, unless the source ends.
func await(ctx context.Context, state func() State, ended, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ended:
		return errStopped
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", state(), context.Cause(ctx))
	}
}

// unless calls f with a context that ends when the source does. If f fails after that, the source's
// end is the reason, also where f has heard of its informer's end first.
func unless(ctx context.Context, ended <-chan struct{}, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() {
		select {
		case <-ended:
			cancel(errStopped)
		case <-ctx.Done():
		}
	})
	err := f(ctx)
	if err != nil && closed(ended) {
		return errStopped
	}
	return err
}

func closedChannel() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
