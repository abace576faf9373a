// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// mostGivenUp is how many writes are remembered that were not shown within the bound.
const mostGivenUp = 100

// consistency makes keys wait until the caches show what was written (C6, L9).
type consistency[K comparable] struct {
	name     string        // of the controller
	bound    time.Duration // Options.ReadYourWrites
	hooks    *hook.Controller
	logger   func(context.Context) *slog.Logger
	declared *cache.Declarations
	stale    func() error // why what is watched or read may be old
	queue    *workqueue.Queue[K]
	records  *records[K]

	resolver   resolver
	takingOver atomic.Pointer[string] // what Lead waits for

	mu     sync.Mutex // guards former
	former *past      // what a controller of this name left behind, see Controller.Inherit
}

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

// waitAtMost is how long a key waits for the caches.
func (k *consistency[K]) waitAtMost() time.Duration {
	if k.bound < 0 { // then only a key that returned Stale waits
		return defaultReadYourWrites
	}
	return k.bound
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

// letGo ends the notifications of keys that will not be taken any more: informers outlive a controller.
func (k *consistency[K]) letGo() {
	for _, r := range k.records.all() {
		if r.past != nil && r.past.unnotify != nil {
			r.past.unnotify()
		}
	}
}

// gap is something that is not shown yet.
type gap interface {
	String() string
	Notify(f func()) (cancel func())
	// Failing reports whether the gap cannot close before an informer recovers.
	Failing() bool
}

// textGap is a gap that can only be asked about again.
type textGap string

func (g textGap) String() string     { return string(g) }
func (textGap) Notify(func()) func() { return func() {} }
func (textGap) Failing() bool        { return false }

// unseen is a write that the caches may not show yet.
type unseen struct {
	ledger.Write

	// What the caches have to show instead, once the API server was asked about a lost answer.
	resolved bool
	instead  []cache.Written

	unresolvable bool // no cache of ours keeps the object, so there is no place to look
	failing      bool // it was given up while its informer failed
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

// behind returns the last write that an informer does not show yet, if there is one, and why some
// cannot be waited for. Those with a lost answer become unsure. It asks about the oldest first, and
// again about all until all are shown: an object that was created and deleted is absent before and
// after, and only its creation tells the one from the other.
func (k *consistency[K]) behind(p *past) (last gap, unknown error) {
	if p.answers != nil {
		p.awaited, p.answers = awaited(p.answers)
		p.awaited = append(p.awaited, p.revived...)
	}
	p.unsure = nil
	for i := range p.awaited {
		w := &p.awaited[i]
		missing, why := k.gapOf(w)
		switch {
		case missing != nil:
			last = missing
		case why != nil && w.Unknown != "" && !w.resolved:
			p.unsure = append(p.unsure, *w)
		case why != nil:
			unknown = errors.Join(unknown, fmt.Errorf("%s: %w", &w.Write, why))
		}
	}
	return last, unknown
}

// gapOf returns what an informer does not show of a write, or why that cannot be told.
func (k *consistency[K]) gapOf(w *unseen) (missing gap, unknown error) {
	if w.Effect == ledger.Pending {
		return textGap(w.String() + ": there is no answer yet"), nil
	}
	shows := w.instead
	if !w.resolved {
		shows = []cache.Written{written(&w.Write)}
	}
	for _, s := range shows {
		g, why := k.declared.Behind(s)
		if g != nil {
			missing = g
		}
		unknown = errors.Join(unknown, why)
	}
	return missing, unknown
}

// stillMissing names the writes that were given up and are not shown now, and forgets the others. A
// write with a lost answer counts as missing for as long as a key would wait for it.
func (k *consistency[K]) stillMissing(p *past) error {
	var all []error
	var missing []unseen
	for i := range p.givenUp {
		w := &p.givenUp[i]
		gap, why := k.gapOf(w)
		switch {
		case w.Effect == ledger.Pending: // its ledger was given up with it
			if time.Since(w.Started) >= k.waitAtMost() {
				continue
			}
			all = append(all, errors.New(gap.String()))
		case gap != nil:
			w.failing = gap.Failing()
			all = append(all, errors.New(gap.String()))
		case why != nil && w.Unknown != "" && time.Since(w.Started.Add(w.Took)) < k.waitAtMost():
			all = append(all, fmt.Errorf("%s: %w", &w.Write, why))
		default:
			continue
		}
		missing = append(missing, *w)
	}
	p.givenUp = missing
	return errors.Join(all...)
}

// unansweredOf names the writes that still have no answer.
func unansweredOf(writes []unseen) error {
	var all []error
	for i := range writes {
		if w := &writes[i]; w.Effect == ledger.Pending {
			all = append(all, errors.New(w.String()+": there is no answer yet"))
		}
	}
	return errors.Join(all...)
}

// awaited returns what was written, and the ledger if it has to be asked again.
func awaited(l *ledger.Ledger) (writes []unseen, again *ledger.Ledger) {
	for _, w := range l.Writes() {
		writes = append(writes, unseen{Write: w})
		if w.Effect == ledger.Pending {
			again = l
		}
	}
	return writes, again
}

// written translates a write of the ledger for the cache.
func written(w *ledger.Write) cache.Written {
	shown := cache.Written{
		Host: w.Host, Resource: schema.GroupResource{Group: w.Group, Resource: w.Resource}, Namespace: w.Namespace, Name: w.Name,
		UID: w.UID, ResourceVersion: w.ResourceVersion, Object: w.Object, Unknown: w.Unknown,
		Subresource: w.Subresource,
		Gone:        w.Effect == ledger.Gone,
		Marked:      w.Effect == ledger.Accepted && (w.Verb == "deletecollection" || w.Verb == "delete" && w.Subresource == "" || w.Subresource == "eviction"),
	}
	if w.Salt != "" {
		shown.Hashed = w.Salt
	}
	return shown
}

func (k *consistency[K]) tellAwaited(a hook.Awaited) {
	if k.hooks.Awaited != nil {
		a.Controller = k.name
		k.hooks.Awaited(a)
	}
}
