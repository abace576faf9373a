// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// Status describes a source, and lets others wait for it. The zero value is a source that is not
// synced. A source sets it; all methods may be called at any time, from any goroutine.
type Status struct {
	own     own // nil: the source is not of this package
	started atomic.Bool

	once                   sync.Once
	synced, settled, ended chan struct{} // see channels; ended is closed by Run's end

	mu  sync.Mutex
	err error
}

// own is a source of this package, which knows more.
type own interface {
	settle(ctx context.Context) error
	stale() error
	state() State
}

// channels returns s with its channels.
func (s *Status) channels() *Status {
	s.once.Do(func() {
		s.synced, s.settled, s.ended = make(chan struct{}), make(chan struct{}), make(chan struct{})
	})
	return s
}

// SetSynced records that the source has delivered everything that existed at the start, or that it
// works again after SetFailing. Call it in Run: Replay may be called from then on.
func (s *Status) SetSynced() { s.SetFailing(nil) }

// SetFailing records a problem. Workers do not wait for a source with a problem.
func (s *Status) SetFailing(err error) {
	s.channels()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	if !run.Closed(s.settled) {
		close(s.settled)
	}
	if err == nil && !run.Closed(s.synced) {
		close(s.synced)
	}
}

// WaitForSync returns nil once the source is synced. If ctx ends first, the error has the state.
func (s *Status) WaitForSync(ctx context.Context) error { return s.wait(ctx, s.channels().synced) }

// Settled returns nil once the source is synced, or has a problem that Stale and State name. If ctx
// ends first, the error has the state.
func (s *Status) Settled(ctx context.Context) error {
	if s.own != nil {
		return s.own.settle(ctx)
	}
	return s.wait(ctx, s.channels().settled)
}

// Stale returns nil while the source delivers every change as it happens, else the reason.
func (s *Status) Stale() error {
	if s.own != nil {
		return s.own.stale()
	}
	return s.problem()
}

// State returns the current state. Counting takes time, so do not call it often.
func (s *Status) State() State {
	if s.own != nil {
		return s.own.state()
	}
	phase, err := s.phase()
	return State{Phase: phase, Err: err}
}

func (s *Status) phase() (hook.Phase, error) {
	s.channels()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case run.Closed(s.ended):
		return hook.Stopped, nil
	case s.err != nil:
		return hook.Failing, s.err
	case run.Closed(s.settled):
		return hook.Synced, nil
	case s.own == nil || s.started.Load():
		return hook.Syncing, nil
	default:
		return hook.NotStarted, nil
	}
}

var (
	errNotRunning = errors.New("the source does not run yet")
	errSyncing    = errors.New("the source has not handled all of its initial objects yet")
	errStopped    = errors.New("the source has stopped")
)

func (s *Status) problem() error {
	switch phase, err := s.phase(); phase {
	case hook.Stopped:
		return errStopped
	case hook.Syncing:
		return errSyncing
	case hook.NotStarted:
		return errNotRunning
	default:
		return err
	}
}

func (s *Status) wait(ctx context.Context, synced <-chan struct{}) error {
	if err := s.await(ctx, nil, synced); err != nil {
		return fmt.Errorf("not synced: %w", err)
	}
	return nil
}

// await is wait for any channel, or returns errStopped if ended is closed first.
func (s *Status) await(ctx context.Context, ended, done <-chan struct{}) error {
	if run.Closed(done) {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ended:
		return errStopped
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", s.State(), context.Cause(ctx))
	}
}

// base is the part that all sources of this package have.
type base struct {
	name    string
	drops   *drops
	status  Status
	reports atomic.Pointer[reports] // set by begin; nil without an Observer

	mu sync.Mutex // guards the last group of fields in Channel, ticker, retries and gate
}

// reports is the part of an Observer for trouble.
type reports interface {
	Dropped(reason string)
	HandlerFailed(object string, err error)
	HandlerBlocked(after time.Duration)
	PollFailed(err error)
}

// init prepares a base for its source.
func (b *base) init(name string, drops *drops, of own) {
	b.name, b.drops, b.status.own = name, drops, of
	b.status.channels()
}

func (b *base) begin(to reports) error {
	if b.status.started.Swap(true) {
		return fmt.Errorf("%s: the source has run before, or belongs to two controllers; make one for each", b.name)
	}
	if to != nil {
		b.reports.Store(&to)
	}
	return nil
}

// Status implements Source.
func (b *base) Status() *Status { return &b.status }

// String implements Source.
func (b *base) String() string { return b.name }

func (b *base) settle(ctx context.Context) error { return b.status.wait(ctx, b.status.settled) }

func (b *base) stale() error { return b.status.problem() }

func (b *base) state() State {
	phase, err := b.status.phase()
	return State{Source: b.name, Phase: phase, Err: err, Dropped: b.drops.snapshot()}
}

func (b *base) drop(reason int) {
	b.drops.counts[reason].Add(1)
	if r := b.reports.Load(); r != nil {
		(*r).Dropped(b.drops.reasons[reason])
	}
}

func (b *base) report(object string, err error) {
	if r := b.reports.Load(); r != nil {
		(*r).HandlerFailed(object, err)
	}
}
