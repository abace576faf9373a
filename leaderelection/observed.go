// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/setpoint-dev/setpoint/term"
)

var (
	errHostStops = errors.New("the host gives the Lease up")
	errNoLease   = errors.New("Lead was called while the process does not hold the Lease; call it in OnStartedLeading, with its context")
)

// tenure is one term that the host's elector has won.
type tenure struct {
	term *term.Term
	lost *time.Timer // loses it when it has lasted too long without a renewal
	over *time.Timer // ends the term's trust, when work that was cancelled then has had its time

	// guarded by Observed.mu:
	trust  hold
	sent   time.Time         // the last renewal that succeeded
	state  state             //
	leads  []*leadership     // that have not returned
	runs   []<-chan struct{} // of the elector: all are closed when it has returned, none if nobody knows
	closes bool              // nothing new may lead
}

// state is what has become of a tenure.
type state uint8

const (
	isHeld     state = iota
	isLost           // against our will
	isReleased       // or about to be
)

// leadership is one call of Lead.
type leadership struct {
	lose, stop context.CancelCauseFunc
	duty       *duty
	returned   chan struct{}
}

// Lead calls lead in the term that the elector has won; the type Lead says with which contexts. It is called in OnStartedLeading, with
// the context that this is given, once or by several goroutines at once. It returns when lead has: what lead returned, nil after a
// stop, or ErrLost when the term was lost. RunOrDie may return before, if the Lease was lost or is not to be released: whoever exits
// then should wait for Lead.
func (o *Observed) Lead(ctx context.Context, lead Lead) error {
	work, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	defer lose(nil)
	take, stop := context.WithCancelCause(work)
	defer stop(nil)
	l := &leadership{lose: lose, stop: stop, returned: make(chan struct{})}
	t, err := o.enter(ctx, l)
	if t == nil {
		return err
	}
	defer o.leave(t, l)
	defer context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })()
	err = lead(term.With(take, t.term), term.With(work, t.term))
	if take.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(take))) {
		err = nil // it was asked to stop, and says so
	}
	if err == nil && errors.Is(context.Cause(work), ErrLost) {
		return fmt.Errorf("the Lease %s: %w", o, ErrLost)
	}
	return err
}

// enter lets somebody lead, or says why not; neither if that was to stop already.
func (o *Observed) enter(ctx context.Context, l *leadership) (*tenure, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.tenure
	if t != nil {
		t.runs = append(t.runs, ctx.Done())
	}
	switch {
	case ctx.Err() != nil:
		return nil, nil //nolint:nilnil // there is nothing to do
	case t == nil || t.state == isReleased:
		return nil, errNoLease
	case t.state == isLost || t.closes:
		return nil, fmt.Errorf("the Lease %s: %w", o, ErrLost)
	}
	t.leads = append(t.leads, l)
	l.duty = o.duties.begin(t.sent)
	return t, nil
}

func (o *Observed) leave(t *tenure, l *leadership) {
	o.mu.Lock()
	t.leads = slices.DeleteFunc(slices.Clone(t.leads), func(other *leadership) bool { return other == l })
	o.mu.Unlock()
	o.duties.join(l.duty)
	close(l.returned)
}

// begin makes the term that a write has won.
func (o *Observed) begin(token term.Token, sent time.Time, at instant, left *term.Handover) *tenure {
	t := &tenure{sent: sent, trust: hold{limit: o.o.lasts(), sent: at}}
	t.term = term.New(token, sent, o.o.fence())
	if left != nil {
		t.term.Inherit(*left)
	}
	t.lost = time.AfterFunc(time.Until(sent.Add(o.o.lasts())), func() { o.lose(t) })
	t.over = time.AfterFunc(time.Until(sent.Add(o.o.fence())), func() { t.term.End(ErrLost) })
	return t
}

// renewedLocked makes it last from when the last renewal was sent, unless it was lost before.
func (o *Observed) renewedLocked(t *tenure, sent time.Time, at instant) bool {
	if t.state == isLost || !t.lost.Stop() {
		return false
	}
	t.lost.Reset(time.Until(sent.Add(o.o.lasts())))
	t.over.Reset(time.Until(sent.Add(o.o.fence())))
	t.term.Extend(sent)
	t.sent = sent
	t.trust.renew(at)
	for _, l := range t.leads {
		o.duties.renew(l.duty, sent)
	}
	return true
}

// lose ends a term against our will. Its trust goes on until it is over, so that work that is cancelled can say so.
func (o *Observed) lose(t *tenure) {
	o.mu.Lock()
	first, leads := t.state == isHeld, t.leads
	if first {
		t.state = isLost
	}
	wanted := len(leads) > 0 || len(t.runs) == 0 || t.goesOnLocked() != nil
	o.mu.Unlock()
	if !first || !wanted { // the host has stopped, and does not release
		return
	}
	t.lost.Stop()
	for _, l := range leads {
		o.duties.lose(l.duty)
		l.lose(ErrLost)
	}
	if o.o.Hooks.Lost != nil {
		o.o.Hooks.Lost(o.o.Lease)
	}
}

// close has what leads stop, lets nothing else lead, and waits until all has returned: not longer than ctx, nor than the trust lasts.
func (o *Observed) close(ctx context.Context, t *tenure) error {
	o.mu.Lock()
	t.closes = true
	leads := t.leads
	o.mu.Unlock()
	for _, l := range leads {
		l.stop(errHostStops)
	}
	for _, l := range leads {
		select {
		case <-l.returned:
			continue
		default:
		}
		select {
		case <-l.returned:
		case <-ctx.Done():
			return fmt.Errorf("the Lease %s is not released, because the work under it has not stopped: %w", o, context.Cause(ctx))
		case <-t.term.Done():
			return fmt.Errorf("the Lease %s is not released, because the work under it has not stopped: %w", o, ErrLost)
		}
	}
	o.mu.Lock()
	if t.state == isHeld {
		t.state = isReleased
	}
	o.mu.Unlock()
	t.lost.Stop()
	t.over.Stop()
	t.term.End(errReturned)
	return nil
}

// goesOnLocked says why a term that is over keeps the elector from holding the Lease: what led under it, or the elector itself, goes
// on as if it were not.
func (t *tenure) goesOnLocked() error {
	if len(t.leads) > 0 {
		return fmt.Errorf("%w, and the work under it has not stopped", ErrLost)
	}
	for _, run := range t.runs {
		select {
		case <-run:
		default:
			return fmt.Errorf("%w, so the elector has to begin anew", ErrLost)
		}
	}
	return nil
}
