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

const mostGivenUp = 100

// eventRecovered is the Event of a retry that does not wait for the end of its backoff, because an
// informer has recovered.
const eventRecovered = "InformerRecovered"

// eventRelisted is the Event of a key whose written object is missing after a relist. Another
// client may have deleted the object without an event.
const eventRelisted = "Relisted"

// visibility makes keys wait until the caches show earlier writes.
type visibility[K comparable] struct {
	pendingWrites

	queue   *workqueue.Queue[K]
	records *records[K]
}

// parkedKey wakes a key when its lag has closed.
type parkedKey[K comparable] struct {
	queue *workqueue.Queue[K]
	key   K
}

func (p *parkedKey[K]) Wake() { p.queue.Wake(p.key) }

// heldEvent adds a key when an informer shows the event of another one.
type heldEvent[K comparable] struct {
	parkedKey[K]
	how workqueue.AddOptions
}

func (h *heldEvent[K]) Wake() { h.queue.AddWith(h.key, h.how) }

// putOff parks a key while the caches lack its last Reconcile's writes, or, after Stale, while
// anything is stale. Otherwise p.doubts describes what the next Reconcile may not see.
func (k *visibility[K]) putOff(ctx context.Context, item workqueue.Item[K], p *lastRun) (parked bool) {
	if p.unnotify != nil {
		p.unnotify()
		p.unnotify = nil
	}
	k.revive(p)
	missing, unknown := k.outstanding(ctx, p)
	p.doubts = errors.Join(p.lost, unknown)
	reason := missing
	if reason == nil && p.stale {
		reason = k.staleLag(p)
	}
	now := time.Now()
	if p.since.IsZero() && reason != nil {
		p.since = now
	}
	left := k.waitAtMost() - now.Sub(p.since)
	if p.stale { // it would return Stale again at once
		left = max(left, time.Second-now.Sub(p.since))
	}
	if reason == nil || left <= 0 {
		k.giveUp(p, missing != nil, now)
		return false
	}
	k.park(item, p, reason, left)
	return true
}

func (k *visibility[K]) park(item workqueue.Item[K], p *lastRun, reason lag, left time.Duration) {
	p.missing = reason.String()
	p.unnotify = reason.Notify(&parkedKey[K]{k.queue, item.Key()})
	pause := min(left, time.Second<<min(p.checks, 10))
	if _, silent := reason.(textLag); silent { // it never notifies
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

func (k *pendingWrites) giveUp(p *lastRun, expired bool, now time.Time) {
	report := p.doubts != nil || p.in(writeUnsure) || !p.since.IsZero()
	if p.expired = expired; expired {
		p.doubts = errors.Join(p.doubts, unansweredOf(p))
	}
	p.giveUp(expired)
	p.forget(mostGivenUp)
	still := k.stillMissing(p)
	if expired && still != nil {
		still = fmt.Errorf("not shown within %s: %w", k.bound, still)
	}
	p.doubts = errors.Join(p.doubts, still)
	if report {
		a := &hook.Awaited{Controller: k.name, Expired: expired, Doubts: p.doubts}
		if !p.since.IsZero() {
			a.Took = now.Sub(p.since)
		}
		k.o.Hook.Send(a)
	}
}

// giveUp gives up the writes whose fate is unknown or, if all is set, all that the key waits for.
func (p *lastRun) giveUp(all bool) {
	for i := range p.writes {
		w := &p.writes[i]
		if w.state == writeUnsure || w.state == writeWaits && (all || w.open) {
			w.state = writeGivenUp
		}
	}
}

// forget keeps only the newest given-up writes.
func (p *lastRun) forget(most int) {
	for i := len(p.writes) - 1; i >= 0; i-- {
		if w := &p.writes[i]; w.state != writeGivenUp {
			continue
		} else if most--; most < 0 {
			w.state = writeShown
		}
	}
}

// revive makes a key wait again for writes given up while their informer failed.
func (k *pendingWrites) revive(p *lastRun) {
	for i := range p.writes {
		w := &p.writes[i]
		if w.state != writeGivenUp || !w.failing {
			continue
		}
		switch missing, _ := k.lagOf(w); {
		case missing == nil:
			w.state = writeShown
		case !missing.Failing():
			w.state, w.failing = writeWaits, false
		}
	}
}

func (k *pendingWrites) isOver(p *lastRun) bool {
	if p.failure != nil || !p.since.IsZero() || p.answers != nil || p.held {
		return false
	}
	now := *p
	now.writes = slices.Clone(p.writes)
	lag, _ := k.behind(&now)
	now.giveUp(false)
	return lag == nil && k.stillMissing(&now) == nil
}

// letGo cancels all notifications, because informers outlive a controller.
func (k *visibility[K]) letGo() {
	for _, r := range k.records.all() {
		if r.past != nil && r.past.unnotify != nil {
			r.past.unnotify()
		}
	}
}

// outstanding returns what behind does. It asks the API server about lost answers when nothing else
// is missing.
func (k *pendingWrites) outstanding(ctx context.Context, p *lastRun) (missing lag, unknown error) {
	missing, unknown = k.behind(p)
	if missing != nil || !p.in(writeUnsure) {
		return missing, unknown
	}
	if missing = k.resolve(ctx, p); missing != nil {
		return missing, unknown
	}
	return k.behind(p)
}

func (k *visibility[K]) parkStale(item workqueue.Item[K], p *lastRun) {
	p.since = time.Now()
	reason := k.staleLag(p)
	if reason == nil { // it has recovered, or cannot notify
		reason = textLag("the reconcile returned Stale")
	}
	k.park(item, p, reason, k.waitAtMost())
}

// Relisted looks for objects that are missing after a relist.
func (k *visibility[K]) Relisted() {
	for key, r := range k.records.all() {
		if r.past != nil && k.missed(r.past) {
			k.addMissed(key)
		}
	}
}

func (k *visibility[K]) addMissed(key K) {
	k.queue.AddWith(key, workqueue.AddOptions{Class: workqueue.Background, Reason: workqueue.Reason{Source: "cache", Event: eventRelisted}})
}

// Recovered makes keys due that failed before an informer recovered. They may have failed before
// the informer did, in the same outage.
func (k *visibility[K]) Recovered() {
	last := k.informers.Recovered()
	for key, r := range k.records.all() {
		if p := r.past; p != nil && p.backsOff && !p.failure.At.After(last) {
			k.queue.AddWith(key, workqueue.AddOptions{Class: workqueue.Background, Reason: workqueue.Reason{Source: "cache", Event: eventRecovered}})
		}
	}
}
