// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/setpoint-dev/setpoint/workqueue"
)

// staleKey is under which the context of a Reconcile has the function that Stale calls, and doubtsKey what it does not see.
type (
	staleKey  struct{}
	doubtsKey struct{}
)

// Stale returns an error, in a Reconcile, if what it reads may be older than the API server's state:
// one for each source or handle of its controller that does not follow the API server, and one for
// each write of the key's last Reconcile, or of the previous leader, that was not shown in time. It
// returns nil if everything is current, and in any other context. A stale read returns the last
// known state (S9, C6); a read of what was never synced waits for its context.
//
// A Reconcile that must not act on stale data returns this error. The key is then parked until
// nothing is stale, at most Options.ReadYourWrites at a time, and reconciled again. That is no
// failure: it does not count as an attempt.
func Stale(ctx context.Context) error {
	stale, ok := ctx.Value(staleKey{}).(func() error)
	if !ok {
		return nil
	}
	doubts, _ := ctx.Value(doubtsKey{}).(error)
	if err := errors.Join(doubts, stale()); err != nil {
		return &staleError{err}
	}
	return nil
}

// staleError is what Stale returns.
type staleError struct{ err error }

func (s *staleError) Error() string { return s.err.Error() }
func (s *staleError) Unwrap() error { return s.err }

// isStale reports whether an error is what Stale returned, and nothing else besides.
func isStale(err error) bool {
	if err == nil {
		return false
	}
	if _, ok := err.(*staleError); ok { //nolint:errorlint // it unwraps by itself
		return true
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return len(joined.Unwrap()) > 0 && !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !isStale(err) })
	}
	return isStale(errors.Unwrap(err))
}

// parkStale parks a key whose Reconcile returned Stale.
func (k *consistency[K]) parkStale(item workqueue.Item[K], p *past) {
	p.since = time.Now()
	reason := k.staleGap(p)
	if reason == nil { // it has recovered since, or only a look in a moment can tell
		reason = textGap("the reconcile returned Stale")
	}
	k.park(item, p, reason, k.waitAtMost())
}

// staleGap returns what a key waits for whose Reconcile returned Stale: a declared informer that
// fails, a write that was given up, or a source. It is nil if all are current.
func (k *consistency[K]) staleGap(p *past) gap {
	if failing := k.declared.Failing(); failing != nil {
		return failing
	}
	for i := range p.givenUp {
		if missing, _ := k.gapOf(&p.givenUp[i]); missing != nil {
			return missing
		}
	}
	if err := k.stale(); err != nil {
		return textGap(err.Error())
	}
	return nil
}

// EventRecovered is the Event of the reason of a retry that did not wait for the end of its backoff: an
// informer has recovered since the Reconcile failed, and so most likely has the API server.
const EventRecovered = "InformerRecovered"

// EventRelisted is the Event of the reason of a Reconcile after an informer has listed everything again
// and does not have what the key has written: another client may have deleted it, without an event.
const EventRelisted = "Relisted"

// relisted looks, after an informer has listed everything, for keys that may have missed a change.
func (k *consistency[K]) relisted() {
	for key, r := range k.records.all() {
		if r.past != nil && k.missed(r.past) {
			k.addMissed(key)
		}
	}
}

// missed reports whether something may have happened without any event to what a key has written.
func (k *consistency[K]) missed(p *past) bool {
	return slices.ContainsFunc(p.awaited, func(w unseen) bool { return k.declared.Missed(written(&w.Write)) })
}

// addMissed makes a key due that may have missed a change. It then waits until its writes are shown,
// as always.
func (k *consistency[K]) addMissed(key K) {
	k.queue.AddWith(key, workqueue.How{Class: workqueue.Background, Reason: workqueue.Reason{Source: "cache", Event: EventRelisted}})
}

// recovered makes keys due whose Reconciles failed before an informer recovered: most likely, the API
// server has. A failure may come before its informer notices the same outage.
func (k *consistency[K]) recovered() {
	last := k.declared.Recovered()
	for key, r := range k.records.all() {
		if p := r.past; p != nil && p.backsOff && !p.failure.At.After(last) {
			k.queue.AddWith(key, workqueue.How{Class: workqueue.Background, Reason: workqueue.Reason{Source: "cache", Event: EventRecovered}})
		}
	}
}
