// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/term"
)

// ErrLost is the cause of a term's contexts when the term is lost.
var ErrLost = errors.New("the term of leadership is lost")

var (
	errStops   = errors.New("the Lease is about to be released")
	errNoLease = errors.New("Lead was called while the process does not hold the Lease; call it in OnStartedLeading, with its context")
)

// tenure is one term, from the acquisition until no work runs under it.
type tenure struct {
	o     *Options
	name  string // of the Lease
	now   clock
	term  *term.Term
	timer *time.Timer // for the loss of the term, then for the end of its trust
	// called once when the term is lost, unless its work and the host's elector have stopped
	lost func()

	mu    sync.Mutex // guards what follows
	trust trust
	leads []*leadership
	runs  []<-chan struct{} // of a host's elector: all are closed when it has returned
}

type leadership struct {
	lose, stop context.CancelCauseFunc
	returned   chan struct{}
}

func (t *tenure) begin(token term.Token, sent moment, left *fence.Handover) *tenure {
	t.term = term.New(token, sent.time, t.o.fence())
	(*fence.Term)(t.term).Inherit(left)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trust = trustOf(t.o, sent.by)
	t.timer = time.AfterFunc(t.trust.left(t.now()), func() { t.expire() })
	return t
}

func (t *tenure) renew(sent moment) bool {
	t.mu.Lock()
	now := t.now()
	renewed, left := t.trust.renew(sent.by, now), t.trust.left(now)
	t.mu.Unlock()
	if renewed {
		t.term.Extend(sent.time)
		t.timer.Reset(left)
	}
	return !t.expire()
}

func (t *tenure) expire() bool { return t.lose(false) }

// taken loses the term because the Lease is not ours any more. Its trust ends at once.
func (t *tenure) taken() { t.lose(true) }

// lose lets the trust last until its time is over, so that the work can make requests to stop.
func (t *tenure) lose(taken bool) (lost bool) {
	t.mu.Lock()
	now, was := t.now(), t.trust.state
	if taken {
		t.trust.lose(now)
	}
	lost = t.trust.lost(now)
	over, left := taken || lost && t.trust.over(now), t.trust.left(now)
	leads, idle := t.leads, len(t.runs) > 0 && t.goesOnLocked() == nil
	t.mu.Unlock()
	if over {
		t.term.End(ErrLost)
	}
	if !lost || was == isLost {
		return lost
	}
	if !over {
		t.timer.Reset(left)
	}
	for _, l := range leads {
		l.lose(ErrLost)
	}
	if !idle {
		t.lost()
	}
	return lost
}

func (t *tenure) lead(ctx context.Context, lead term.Lead) error {
	work, lose := context.WithCancelCause(term.With(context.WithoutCancel(ctx), t.term))
	defer lose(nil)
	take, stop := context.WithCancelCause(work)
	defer stop(nil)
	l := &leadership{lose: lose, stop: stop, returned: make(chan struct{})}
	if held, err := t.enter(l); !held {
		return err
	}
	defer t.leave(l)
	defer context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })()
	err := lead(take, work)
	if work.Err() != nil {
		<-take.Done() // a context ends just before the contexts derived from it
	}
	// After a suspension the fence may refuse a request before the timer has ended the contexts.
	fenced := errors.Is(err, term.ErrFenced) && t.expire()
	if fenced || take.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(take))) {
		return nil // it stopped as requested
	}
	return err
}

func (t *tenure) enter(l *leadership) (held bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.trust.state {
	case isHeld:
		t.leads = append(t.leads, l)
		return true, nil
	case isEnded:
		return false, errNoLease
	case isClosing, isLost:
	}
	return false, nil
}

func (t *tenure) leave(l *leadership) {
	t.mu.Lock()
	t.leads = slices.DeleteFunc(slices.Clone(t.leads), func(other *leadership) bool { return other == l })
	t.mu.Unlock()
	close(l.returned)
}

// close returns nil if the term has ended, so that the Lease may be released.
func (t *tenure) close(ctx context.Context) error {
	t.mu.Lock()
	if t.trust.state == isHeld {
		t.trust.state = isClosing
	}
	leads := t.leads
	t.mu.Unlock()
	for _, l := range leads {
		l.stop(errStops)
	}
	for _, l := range leads {
		if err := t.join(ctx, l); err != nil {
			return fmt.Errorf("the Lease %s is not released, because the work under it has not stopped: %w", t.name, err)
		}
	}
	t.mu.Lock()
	if t.trust.state == isClosing {
		t.trust.state = isEnded
	}
	t.mu.Unlock()
	t.finish()
	return nil
}

func (t *tenure) join(ctx context.Context, l *leadership) error {
	if run.Closed(l.returned) {
		return nil
	}
	select {
	case <-l.returned:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.term.Done():
		return ErrLost
	}
}

// finish ends the term when no work runs under it.
func (t *tenure) finish() {
	t.mu.Lock()
	var cause error // its work has returned
	if t.trust.state == isLost {
		cause = ErrLost
	}
	t.mu.Unlock()
	t.end(cause)
}

func (t *tenure) end(cause error) {
	t.timer.Stop()
	t.term.End(cause)
}

func (t *tenure) left() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.trust.left(t.now())
}

// expired reports whether another process may have acquired the Lease since this term's last
// renewal.
func (t *tenure) expired() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.trust.since(t.now()) >= t.trust.lease
}

func (t *tenure) patience() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.trust.patience(t.now())
}

// ranBy records the run of a host's elector. done is closed when the run ends.
func (t *tenure) ranBy(done <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runs = append(t.runs, done)
}

// renews reports whether a write of the Lease renews this term; else it begins another one.
func (t *tenure) renews() (yes bool, err error) {
	t.expire()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.trust.state == isHeld {
		return true, nil
	}
	return false, t.goesOnLocked()
}

func (t *tenure) goesOnLocked() error {
	if len(t.leads) > 0 {
		return fmt.Errorf("%w, and the work under it has not stopped", ErrLost)
	}
	if slices.ContainsFunc(t.runs, func(done <-chan struct{}) bool { return !run.Closed(done) }) {
		return fmt.Errorf("%w, so the elector must start again", ErrLost)
	}
	return nil
}

// check accepts a nil t.
func (t *tenure) check() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	since := t.now().mono - t.trust.lostAt.mono // a machine that slept is given the time
	if t.trust.state != isLost || len(t.leads) == 0 || since <= t.o.StuckAfter {
		return nil
	}
	return fmt.Errorf("the Lease %s was lost %s ago, and the work under it has not stopped: this process must be replaced", t.name, since.Round(time.Second))
}

// instant is a time by both clocks of a process. The monotonic clock may stand still while a
// machine sleeps, and the wall clock may be set.
type instant struct{ mono, wall time.Duration }

type clock func() instant

func newClock(wall func() time.Time) clock {
	began, from := time.Now(), wall()
	return func() instant { return instant{mono: time.Since(began), wall: wall().Sub(from)} }
}

func wallTime() time.Time { return time.Now().Round(0) }

type moment struct {
	time time.Time
	by   instant
}

func (c clock) moment() moment { return moment{time.Now(), c()} }

// state is the state of a term:
//
//	held ──▶ closing ──▶ ended
//	  └──▶ lost ◀──┘
type state uint8

const (
	isHeld    state = iota
	isClosing       // its work must stop, and none may begin
	isLost
	isEnded // its work has stopped
)

// trust is the arithmetic of a term, without a clock or a lock.
type trust struct {
	// The times since the last successful renewal was sent until the term is lost (lasts), requests
	// are refused (fence) and a rival may lead (lease).
	lasts, fence, lease time.Duration

	sent   instant // of the last successful renewal
	lostAt instant // when the process noticed the loss
	state  state
}

func trustOf(o *Options, sent instant) trust {
	return trust{lasts: o.lasts(), fence: o.fence(), lease: o.LeaseDuration, sent: sent}
}

// since is the age of the last renewal by the clock that has run further.
func (t *trust) since(now instant) time.Duration {
	return max(now.mono-t.sent.mono, now.wall-t.sent.wall)
}

// lost stays true even if a clock is set back.
func (t *trust) lost(now instant) bool {
	if t.since(now) >= t.lasts {
		t.lose(now)
	}
	return t.state == isLost
}

func (t *trust) lose(now instant) {
	if t.state == isHeld || t.state == isClosing {
		t.state, t.lostAt = isLost, now
	}
}

func (t *trust) over(now instant) bool { return t.since(now) >= t.fence }

// renew does not record a loss: lost does, and its caller also cancels the work.
func (t *trust) renew(sent, now instant) bool {
	if t.state != isHeld || t.since(now) >= t.lasts {
		return false
	}
	t.sent = sent
	return t.since(now) < t.lasts
}

// left is the time until the term is lost, or, for a lost term, until its trust is over.
func (t *trust) left(now instant) time.Duration {
	limit := t.lasts
	if t.state == isLost {
		limit = t.fence
	}
	return t.sent.mono + limit - now.mono
}

// patience is the time for the work of a lost term to stop: until the Lease expires. If the process
// was suspended and noticed the loss later, its work has the usual time from there.
func (t *trust) patience(now instant) time.Duration {
	return max(t.sent.mono+t.lease, t.lostAt.mono+t.lease-t.lasts) - now.mono
}
