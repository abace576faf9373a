// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/setpoint-dev/setpoint/internal/run"
)

// CatchingUp is what a Source may be besides: each of this package is. It is for tests and scripts, which wait until all that they
// have changed has made its keys due.
type CatchingUp interface {
	// CatchUp returns nil once the source has handled all that there was at the call. For Kind that is what the API server had
	// (see cache.Handle.CatchUp), and failed events that are to be tried again; for a Channel what it holds; for a Ticker a poll
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

// catchUp implements CatchUp of Kind and Informer: the handler has been told, and what has failed was tried again.
func (f *feed[K]) catchUp(ctx context.Context, state func() State) error {
	if run.Closed(f.ended) {
		return errStopped
	}
	select {
	case <-f.began:
	case <-f.ended:
		return errStopped
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotRunning, context.Cause(ctx))
	}
	return unless(ctx, f.ended, func(ctx context.Context) error {
		if err := f.events.CatchUp(ctx); err != nil {
			return err
		}
		return await(ctx, state, nil, f.retries.Load().whenCalm())
	})
}

// CatchUp implements subscription.
func (r *registration) CatchUp(context.Context) error {
	return errors.New("an informer that no cache knows of cannot be compared with what the API server has: give it to cache.Adopt, and the handle to source.Kind")
}

// CatchUp implements CatchingUp.
func (c *Channel[E, K]) CatchUp(ctx context.Context) error {
	c.mu.Lock()
	empty := c.empty.When(len(c.events) == 0)
	c.mu.Unlock()
	return await(ctx, c.State, c.ended, empty)
}

// CatchUp implements CatchingUp.
func (t *ticker[K]) CatchUp(ctx context.Context) error {
	if err := await(ctx, t.State, t.ended, t.settled); err != nil {
		return err
	}
	t.mu.Lock()
	polled := t.polled.When(!t.polling)
	t.mu.Unlock()
	return await(ctx, t.State, t.ended, polled)
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
	if err != nil && run.Closed(ended) {
		return errStopped
	}
	return err
}
