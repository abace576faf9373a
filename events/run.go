// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"
	"time"

	eventsv1 "k8s.io/api/events/v1"

	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/rbac"
	"github.com/setpoint-dev/setpoint/term"
)

// Needs returns the right to write events, of a recorder of For: in all namespaces, and in the one
// that has the events about cluster-scoped objects. The client of another one may be of another
// cluster.
func (r *Recorder) Needs() []rbac.Need {
	if !r.hosted {
		return nil
	}
	all := rbac.Rule{Group: eventsv1.GroupName, Resource: "events", Verbs: []string{"create", "patch"}, Why: "the recorder of events"}
	own := all
	own.Namespace = r.namespace
	return []rbac.Need{{Rule: all}, {Rule: own}}
}

// Validate returns the error of invalid options or of an invalid configuration of the client.
func (r *Recorder) Validate() error { return r.err }

// Run sends events until ctx is done, then returns nil at once: [Recorder.Close] sends what is
// left. It returns an error only for invalid options or an invalid configuration of the client.
func (r *Recorder) Run(ctx context.Context) error {
	if r.err != nil {
		return r.err
	}
	for {
		wait, ok := r.sendOne(ctx)
		if !ok {
			return nil
		}
		select {
		case <-r.wake:
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

func (r *Recorder) sendOne(ctx context.Context) (wait time.Duration, ok bool) {
	if !r.begin(ctx) {
		return 0, false
	}
	defer r.end()
	s, wait := r.next(nil)
	if s == nil {
		return wait, true
	}
	r.send(ctx, s)
	return 0, true
}

// begin makes the caller the only goroutine that sends.
func (r *Recorder) begin(ctx context.Context) bool {
	select {
	case r.sending <- struct{}{}:
		if ctx.Err() != nil {
			r.end()
			return false
		}
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *Recorder) end() { <-r.sending }

func (r *Recorder) next(f *flush) (s *series, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.schedule.next(time.Now(), f)
}

// Flush sends all events that were recorded before the call, beyond the limits. If ctx has a term
// of leadership, it sends only events of that term and its parts. It retries failed requests until
// ctx is done, and then returns an error with the number of events that still wait.
func (r *Recorder) Flush(ctx context.Context) error {
	return r.flush(ctx, &flush{term: term.FromContext(ctx)})
}

// Close sends the waiting events until ctx is done, and drops the rest. Later events are dropped,
// too. The error has the number of dropped events. Call Close after Run.
func (r *Recorder) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	err := r.flush(ctx, &flush{})
	select {
	case r.sending <- struct{}{}:
		defer r.end()
	case <-ctx.Done(): // another Flush may go on
	}
	r.mu.Lock()
	r.over = true
	left := r.schedule.clear()
	r.mu.Unlock()
	for _, s := range left {
		for _, b := range []*batch{s.current, s.pending} {
			if b != nil {
				r.dropped(s.key, stopped, b.calls)
			}
		}
	}
	return err
}

func (r *Recorder) flush(ctx context.Context, f *flush) error {
	if r.err != nil {
		return r.err
	}
	r.mu.Lock()
	f.until = r.schedule.batches
	r.mu.Unlock()
	if r.begin(ctx) {
		r.sendAll(ctx, f)
		r.end()
	}
	r.mu.Lock()
	left := r.schedule.waitingCalls(f)
	r.mu.Unlock()
	if left == 0 {
		return nil
	}
	return fmt.Errorf("events: %d events were not sent in time: %w", left, context.Cause(ctx))
}

func (r *Recorder) sendAll(ctx context.Context, f *flush) {
	r.mu.Lock()
	r.schedule.hurry()
	r.mu.Unlock()
	for ctx.Err() == nil {
		s, wait := r.next(f)
		switch {
		case s != nil:
			r.send(ctx, s)
		case wait == forever || run.Sleep(ctx, wait) != nil:
			return
		}
	}
}
