// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// mostGivenUp is how many writes are remembered that were not shown within the bound.
const mostGivenUp = 100

// putOff parks a key whose last Reconcile has written what an informer does not show yet (C6), and reports whether it did. If it
// did not, its doubts are what the Reconcile that starts now has to know: it may not see what was written.
func (c *Controller[K]) putOff(item workqueue.Item[K], p *past) (parked bool) {
	if p.unnotify != nil {
		p.unnotify()
		p.unnotify = nil
	}
	gap, unknown := c.behind(p)
	p.doubts = errors.Join(p.lost, unknown)
	now := time.Now()
	if p.since.IsZero() && gap != nil {
		p.since = now
	}
	left := c.o.ReadYourWrites - now.Sub(p.since)
	if gap == nil || left <= 0 {
		c.giveUp(p, gap != nil, now)
		return false
	}
	p.missing = gap.String()
	p.unnotify = gap.Notify(func() { c.queue.Wake(item.Key()) })
	pause := min(left, time.Second<<min(p.checks, 10))
	p.checks++
	c.journal.put(item.Key(), p)    // before anybody else can take the key
	_ = item.Park(p.missing, pause) // cannot fail: it was taken just now
	if c.queue.ShuttingDown() {     // then it was dropped, and letGo may have been before
		p.unnotify()
	}
	return true
}

// giveUp ends a wait, which there need not have been, because all is shown that can be, or because it has taken too long.
func (c *Controller[K]) giveUp(p *past, expired bool, now time.Time) {
	tell := p.doubts != nil || len(p.unsure) > 0 || !p.since.IsZero()
	given := p.unsure
	if p.expired = expired; expired {
		given = p.awaited
		p.doubts = errors.Join(p.doubts, unansweredOf(p.awaited))
	}
	p.givenUp = slices.Concat(p.givenUp, given)
	p.givenUp = p.givenUp[max(0, len(p.givenUp)-mostGivenUp):]
	still := c.stillMissing(p)
	if expired && still != nil {
		still = fmt.Errorf("not shown within %s: %w", c.o.ReadYourWrites, still)
	}
	p.doubts = errors.Join(p.doubts, still)
	if tell {
		a := hook.Awaited{Expired: expired, Doubts: p.doubts}
		if !p.since.IsZero() {
			a.Took = now.Sub(p.since)
		}
		c.tellAwaited(a)
	}
}

// letGo ends the notifications of keys that nobody takes any more: informers outlive a controller.
func (c *Controller[K]) letGo() {
	for _, p := range c.journal.all() {
		if p.unnotify != nil {
			p.unnotify()
		}
	}
}

// gap is something that is not shown yet.
type gap interface {
	String() string
	Notify(f func()) (cancel func())
}

// behind returns the last write that an informer does not show yet, if there is one, and why some cannot be waited for. Those of
// which nobody knows what they have done become unsure. It asks about the oldest first, and again about all until all are shown:
// an object that was created and deleted is absent before and after, and only its creation tells the one from the other.
func (c *Controller[K]) behind(p *past) (last gap, unknown error) {
	if p.answers != nil {
		p.awaited, p.answers = awaited(p.answers)
	}
	p.unsure = nil
	for i := range p.awaited {
		w := &p.awaited[i]
		if w.Effect == client.Pending {
			last = unanswered{w}
			continue
		}
		missing, why := c.declared.Behind(written(w))
		switch {
		case missing != nil:
			last = missing
		case why != nil && w.Unknown != "":
			p.unsure = append(p.unsure, *w)
		case why != nil:
			unknown = errors.Join(unknown, fmt.Errorf("%s: %w", w, why))
		}
	}
	return last, unknown
}

// stillMissing says which of the writes that were given up are not shown now. What a write has done of which nobody knows is thought
// to be missing for as long as it would be waited for.
func (c *Controller[K]) stillMissing(p *past) error {
	var all []error
	var missing []client.Write
	for i := range p.givenUp {
		w := &p.givenUp[i]
		gap, why := c.declared.Behind(written(w))
		switch {
		case gap != nil:
			all = append(all, errors.New(gap.String()))
		case why != nil && w.Unknown != "" && time.Since(w.Started.Add(w.Took)) < c.o.ReadYourWrites:
			all = append(all, fmt.Errorf("%s: %w", w, why))
		default:
			continue
		}
		missing = append(missing, *w)
	}
	p.givenUp = missing
	return errors.Join(all...)
}

// unanswered is a write that a Reconcile has left behind, under way: it can only be asked about.
type unanswered struct{ *client.Write }

func (u unanswered) String() string       { return u.Write.String() + ": there is no answer yet" }
func (u unanswered) Notify(func()) func() { return func() {} }

// unansweredOf names the writes that nobody can ask about any more.
func unansweredOf(writes []client.Write) error {
	var all []error
	for i := range writes {
		if w := &writes[i]; w.Effect == client.Pending {
			all = append(all, errors.New(unanswered{w}.String()))
		}
	}
	return errors.Join(all...)
}

// awaited returns what was written, and the ledger if it has to be asked again.
func awaited(l *client.Ledger) (writes []client.Write, again *client.Ledger) {
	writes = l.Writes()
	if slices.ContainsFunc(writes, func(w client.Write) bool { return w.Effect == client.Pending }) {
		again = l
	}
	return writes, again
}

// written puts a write of the ledger in the words of the cache.
func written(w *client.Write) cache.Written {
	return cache.Written{
		Host: w.Host, Resource: schema.GroupResource{Group: w.Group, Resource: w.Resource}, Namespace: w.Namespace, Name: w.Name,
		UID: w.UID, ResourceVersion: w.ResourceVersion, Object: w.Object, Unknown: w.Unknown,
		Subresource: w.Subresource,
		Gone:        w.Effect == client.Gone,
		Marked:      w.Effect == client.Accepted && (w.Verb == "deletecollection" || w.Verb == "delete" && w.Subresource == "" || w.Subresource == "eviction"),
	}
}

func (c *Controller[K]) tellAwaited(a hook.Awaited) {
	if c.o.Hooks.Awaited != nil {
		a.Controller = c.name
		c.o.Hooks.Awaited(a)
	}
}
