// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
)

var (
	errNotRunning = errors.New("the source does not run yet")
	errSyncing    = errors.New("the source has not handled yet all that there was at its start")
	errStopped    = errors.New("the source has stopped")
)

// life is what all sources have in common: each runs once, is synced, and ends.
type life struct {
	name   string
	state  func() State // of the source
	drops  *drops
	hooks  atomic.Pointer[hook.Source] // set by begin
	synced chan struct{}               // closed when everything that there was at the start was handled
	ended  chan struct{}               // closed when Run returns

	mu sync.Mutex // guards the fields of Channel and ticker that come last
}

func newLife(name string, drops *drops) life {
	return life{name: name, drops: drops, synced: make(chan struct{}), ended: make(chan struct{})}
}

// begin returns an error if the source has run before.
func (l *life) begin(h *hook.Source) error {
	if h == nil {
		h = &hook.Source{}
	}
	if !l.hooks.CompareAndSwap(nil, h) {
		return fmt.Errorf("%s: the source has run before, or was given to two controllers; make one for each", l.name)
	}
	return nil
}

// String names the source.
func (l *life) String() string { return l.name }

// phase returns NotStarted, Syncing, Synced or Stopped.
func (l *life) phase() hook.Phase {
	switch {
	case run.Closed(l.ended):
		return hook.Stopped
	case run.Closed(l.synced):
		return hook.Synced
	case l.hooks.Load() != nil:
		return hook.Syncing
	default:
		return hook.NotStarted
	}
}

// Stale implements Source.
func (l *life) Stale() error {
	switch l.phase() {
	case hook.Stopped:
		return errStopped
	case hook.Syncing:
		return errSyncing
	case hook.NotStarted:
		return errNotRunning
	default:
		return nil
	}
}

// WaitForSync implements Source.
func (l *life) WaitForSync(ctx context.Context) error { return l.wait(ctx, l.synced) }

// Settled implements Source.
func (l *life) Settled(ctx context.Context) error { return l.wait(ctx, l.synced) }

// wait returns nil once synced is closed, or when ctx ends an error with the source's state.
func (l *life) wait(ctx context.Context, synced <-chan struct{}) error {
	if err := l.await(ctx, nil, synced); err != nil {
		return fmt.Errorf("not synced: %w", err)
	}
	return nil
}

// await is wait for anything else. It returns errStopped if ended is closed before.
func (l *life) await(ctx context.Context, ended, done <-chan struct{}) error {
	if run.Closed(done) {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ended:
		return errStopped
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", l.state(), context.Cause(ctx))
	}
}

// drop counts and reports what is not delivered.
func (l *life) drop(reason int) {
	l.drops.counts[reason].Add(1)
	if h := l.hooks.Load(); h != nil && h.Dropped != nil {
		h.Dropped(hook.SourceDropped{Source: l.name, Reason: l.drops.reasons[reason]})
	}
}

// report reports a failure of the handler.
func (l *life) report(object string, err error) {
	if h := l.hooks.Load(); h.HandlerFailed != nil {
		h.HandlerFailed(hook.SourceFailure{Source: l.name, Object: object, Err: err})
	}
}
