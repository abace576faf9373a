// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// State describes a source at one moment.
type State struct {
	Source string
	// Phase is Synced once the handler has seen everything that existed at the start.
	Phase hook.Phase
	// Err is the reason for the phases Waiting and Failing.
	Err error
	// Note describes broken objects.
	Note string
	// Pending counts the events that are not handled yet: those that the handler works on, the
	// Retrying ones, and those that wait because the handler is busy.
	Pending int
	// Retrying counts the events whose handler or predicate failed.
	Retrying int
	// Failure is the handler's last error while Retrying is not 0.
	Failure error
	// Dropped counts events that were not delivered, by reason, such as a predicate.
	Dropped map[string]int64
}

// MarshalJSON encodes errors as text.
func (s State) MarshalJSON() ([]byte, error) {
	type plain State
	return json.Marshal(struct {
		plain

		Err     string `json:",omitempty"`
		Failure string `json:",omitempty"`
	}{plain(s), textOf(s.Err), textOf(s.Failure)})
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// String returns the state in one line.
func (s State) String() string {
	text := s.Source + ": " + string(s.Phase)
	if s.Err != nil {
		text += ": " + s.Err.Error()
	}
	if s.Note != "" {
		text += "; " + s.Note
	}
	if s.Pending > s.Retrying {
		text += fmt.Sprintf("; %s pending", events(s.Pending-s.Retrying))
	}
	if s.Retrying > 0 {
		text += fmt.Sprintf("; the handler failed for %s, to be retried", events(s.Retrying))
		if s.Failure != nil {
			reason, _, _ := strings.Cut(s.Failure.Error(), "\n") // without the stack
			text += ": " + reason
		}
	}
	if len(s.Dropped) > 0 {
		var dropped []string
		for _, reason := range slices.Sorted(maps.Keys(s.Dropped)) {
			dropped = append(dropped, fmt.Sprintf("%d (%s)", s.Dropped[reason], reason))
		}
		text += "; dropped: " + strings.Join(dropped, ", ")
	}
	return text
}

func events(n int) string {
	if n == 1 {
		return "1 event"
	}
	return fmt.Sprintf("%d events", n)
}

type drops struct {
	reasons []string
	counts  []atomic.Int64
}

func newDrops(reasons ...string) *drops {
	return &drops{reasons: reasons, counts: make([]atomic.Int64, len(reasons))}
}

// snapshot adds up reasons of the same name.
func (d *drops) snapshot() map[string]int64 {
	dropped := map[string]int64{}
	for i, reason := range d.reasons {
		if n := d.counts[i].Load(); n > 0 {
			dropped[reason] += n
		}
	}
	return dropped
}

var (
	errNotRunning = errors.New("the source does not run yet")
	errSyncing    = errors.New("the source has not handled all of its initial objects yet")
	errStopped    = errors.New("the source has stopped")
)

type lifecycle struct {
	name   string
	state  func() State // of the source
	drops  *drops
	hooks  atomic.Pointer[hook.Source] // set by begin
	synced chan struct{}               // closed when the initial objects are handled
	ended  chan struct{}               // closed by Run's end

	mu sync.Mutex // guards the last group of fields in Channel, ticker, retries and gate
}

func newLifecycle(name string, drops *drops) lifecycle {
	return lifecycle{name: name, drops: drops, synced: make(chan struct{}), ended: make(chan struct{})}
}

func (l *lifecycle) begin(h *hook.Source) error {
	if h == nil {
		h = &hook.Source{}
	}
	if !l.hooks.CompareAndSwap(nil, h) {
		return fmt.Errorf("%s: the source has run before, or belongs to two controllers; make one for each", l.name)
	}
	return nil
}

func (l *lifecycle) String() string { return l.name }

func (l *lifecycle) phase() hook.Phase {
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

func (l *lifecycle) Stale() error {
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

func (l *lifecycle) WaitForSync(ctx context.Context) error { return l.wait(ctx, l.synced) }

func (l *lifecycle) Settled(ctx context.Context) error { return l.wait(ctx, l.synced) }

func (l *lifecycle) wait(ctx context.Context, synced <-chan struct{}) error {
	if err := l.await(ctx, nil, synced); err != nil {
		return fmt.Errorf("not synced: %w", err)
	}
	return nil
}

// await is wait for any channel, or returns errStopped if ended is closed first.
func (l *lifecycle) await(ctx context.Context, ended, done <-chan struct{}) error {
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

func (l *lifecycle) drop(reason int) {
	l.drops.counts[reason].Add(1)
	if h := l.hooks.Load(); h != nil && h.Dropped != nil {
		h.Dropped(hook.SourceDropped{Source: l.name, Reason: l.drops.reasons[reason]})
	}
}

func (l *lifecycle) report(object string, err error) {
	if h := l.hooks.Load(); h.HandlerFailed != nil {
		h.HandlerFailed(hook.SourceFailure{Source: l.name, Object: object, Err: err})
	}
}
