// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// mostGivenUp is how many writes are remembered that were not shown within the bound.
const mostGivenUp = 100

// EventRecovered is the Event of a retry that did not wait for the end of its backoff: an informer has
// recovered since the Reconcile failed, and most likely so has the API server.
const EventRecovered = "InformerRecovered"

// EventRelisted is the Event of a Reconcile after a relist without an object that the key has written:
// another client may have deleted it, without an event.
const EventRelisted = "Relisted"

// putOff parks a key while the caches do not show what its last Reconcile wrote (C6), or, if that
// Reconcile returned Stale, while anything is stale. It reports whether it did. If not, p.doubts is
// what the Reconcile that starts now may not see.
func (k *consistency[K]) putOff(ctx context.Context, item workqueue.Item[K], p *past) (parked bool) {
	if p.unnotify != nil {
		p.unnotify()
		p.unnotify = nil
	}
	k.revive(p)
	missing, unknown := k.outstanding(ctx, p)
	p.doubts = errors.Join(p.lost, unknown)
	reason := missing
	if reason == nil && p.stale {
		reason = k.staleGap(p)
	}
	now := time.Now()
	if p.since.IsZero() && reason != nil {
		p.since = now
	}
	left := k.waitAtMost() - now.Sub(p.since)
	if p.stale { // it returns at once, again and again
		left = max(left, time.Second-now.Sub(p.since))
	}
	if reason == nil || left <= 0 {
		k.giveUp(p, missing != nil, now)
		return false
	}
	k.park(item, p, reason, left)
	return true
}

// park parks a key until the gap closes, and asks again from time to time, for at most the time left.
func (k *consistency[K]) park(item workqueue.Item[K], p *past, reason gap, left time.Duration) {
	p.missing = reason.String()
	p.unnotify = reason.Notify(func() { k.queue.Wake(item.Key()) })
	pause := min(left, time.Second<<min(p.checks, 10))
	if _, silent := reason.(textGap); silent { // it calls no Notify
		pause = min(left, time.Second)
	} else {
		p.checks++
	}
	k.records.put(item.Key(), p)    // before another worker can take the key
	_ = item.Park(p.missing, pause) // cannot fail: the item is held
	if k.queue.ShuttingDown() {     // then the key was dropped, perhaps after letGo
		p.unnotify()
	}
}

// giveUp ends a wait, if there was one: because everything is shown, or because the time is over.
func (k *consistency[K]) giveUp(p *past, expired bool, now time.Time) {
	tell := p.doubts != nil || len(p.unsure) > 0 || !p.since.IsZero()
	given := p.unsure
	if p.expired = expired; expired {
		given = p.awaited
		p.doubts = errors.Join(p.doubts, unansweredOf(p.awaited))
	}
	p.givenUp = slices.Concat(p.givenUp, given)
	p.givenUp = p.givenUp[max(0, len(p.givenUp)-mostGivenUp):]
	still := k.stillMissing(p)
	if expired && still != nil {
		still = fmt.Errorf("not shown within %s: %w", k.bound, still)
	}
	p.doubts = errors.Join(p.doubts, still)
	if tell {
		a := hook.Awaited{Expired: expired, Doubts: p.doubts}
		if !p.since.IsZero() {
			a.Took = now.Sub(p.since)
		}
		k.tellAwaited(a)
	}
}

// revive makes a key wait again for writes that it gave up while their informer failed, once the
// informer has recovered.
func (k *consistency[K]) revive(p *past) {
	p.givenUp = slices.DeleteFunc(slices.Clone(p.givenUp), func(w unseen) bool {
		if !w.failing {
			return false
		}
		missing, _ := k.gapOf(&w)
		if missing != nil && missing.Failing() {
			return false
		}
		if missing != nil {
			w.failing = false
			p.awaited, p.revived = append(slices.Clip(p.awaited), w), append(slices.Clip(p.revived), w)
		}
		return true
	})
}

// isOver reports whether nothing depends on a past.
func (k *consistency[K]) isOver(p *past) bool {
	if p.failure != nil || !p.since.IsZero() || p.answers != nil {
		return false
	}
	now := *p
	now.awaited = slices.Clone(p.awaited)
	gap, _ := k.behind(&now)
	now.givenUp = slices.Concat(now.givenUp, now.unsure)
	return gap == nil && k.stillMissing(&now) == nil
}

// letGo ends the notifications of all keys: informers outlive a controller.
func (k *consistency[K]) letGo() {
	for _, r := range k.records.all() {
		if r.past != nil && r.past.unnotify != nil {
			r.past.unnotify()
		}
	}
}

// outstanding returns a write that an informer does not show yet, if there is one, and why others
// cannot be waited for. It asks the API server about lost answers when all informers follow it.
func (k *consistency[K]) outstanding(ctx context.Context, p *past) (missing gap, unknown error) {
	missing, unknown = k.behind(p)
	if missing != nil || len(p.unsure) == 0 {
		return missing, unknown
	}
	if missing = k.resolve(ctx, p); missing != nil {
		return missing, unknown
	}
	return k.behind(p)
}

func (k *consistency[K]) tellAwaited(a hook.Awaited) {
	if k.hooks.Awaited != nil {
		a.Controller = k.name
		k.hooks.Awaited(a)
	}
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

// relisted looks, after an informer has listed everything, for keys that may have missed a change.
func (k *consistency[K]) relisted() {
	for key, r := range k.records.all() {
		if r.past != nil && k.missed(r.past) {
			k.addMissed(key)
		}
	}
}

// addMissed makes a key due that may have missed a change. It then waits until its writes are shown,
// as always.
func (k *consistency[K]) addMissed(key K) {
	k.queue.AddWith(key, workqueue.AddOptions{Class: workqueue.Background, Reason: workqueue.Reason{Source: "cache", Event: EventRelisted}})
}

// recovered makes keys due whose Reconciles failed before an informer recovered. A failure may come
// before its informer notices the same outage.
func (k *consistency[K]) recovered() {
	last := k.declared.Recovered()
	for key, r := range k.records.all() {
		if p := r.past; p != nil && p.backsOff && !p.failure.At.After(last) {
			k.queue.AddWith(key, workqueue.AddOptions{Class: workqueue.Background, Reason: workqueue.Reason{Source: "cache", Event: EventRecovered}})
		}
	}
}
