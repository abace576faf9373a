// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// author is who made a version, as far as the answers prove it.
type author uint8

const (
	someone author = iota
	perhaps        // the key, or another client if the key's write was a no-op
	theKey
)

// made is a version in the answer to a key's write.
type made struct {
	write *ledger.Write
	by    author
}

type version struct{ uid, resourceVersion string }

// madeBy returns the versions in the answers.
func madeBy(writes []pendingWrite) map[version]made {
	var all map[version]made
	for i := range writes {
		w := &writes[i].Write
		// A no-op's version is another client's.
		if w.UID == "" || w.ResourceVersion == "" && w.Effect != ledger.Gone || w.Effect == ledger.Unchanged {
			continue
		}
		if all == nil {
			all = make(map[version]made, len(writes))
		}
		m := made{w, perhaps}
		if w.Made {
			m.by = theKey
		}
		if w.Effect == ledger.Gone { // the answer may lack the version of the event
			all[version{uid: string(w.UID)}] = m
		}
		all[version{string(w.UID), w.ResourceVersion}] = m
	}
	return all
}

// versions returns those in the answers to a Reconcile's writes, and those that were visible before
// it began: their events may come later, from another informer, and are no news.
func (p *lastRun) versions() map[version]made {
	if p.made != nil {
		return p.made
	}
	all := madeBy(p.known())
	if all == nil && len(p.visible) > 0 {
		all = make(map[version]made, len(p.visible))
	}
	for v, w := range p.visible {
		all[v] = made{w, theKey}
	}
	return all
}

// visibleOf returns the versions that a Reconcile has waited for.
func visibleOf(p *lastRun) map[version]*ledger.Write {
	if p == nil || p.expired {
		return nil
	}
	var all map[version]*ledger.Write
	known := p.known()
	for i := range known {
		w := &known[i].Write
		if w.UID == "" || w.ResourceVersion == "" {
			continue
		}
		if all == nil {
			all = make(map[version]*ledger.Write, len(known))
		}
		all[version{string(w.UID), w.ResourceVersion}] = w
	}
	return all
}

// authorOf returns who made what an event shows. After a relist that is someone, because an event
// may then stand for several changes. So may one without a version.
func (c *Controller[K]) authorOf(all map[version]made, r *workqueue.Reason) (author, *ledger.Write) {
	if len(all) == 0 || r.ResourceVersion == "" {
		return someone, nil
	}
	m := all[version{r.UID, r.ResourceVersion}]
	if m.write == nil && r.Event == string(handler.Delete) {
		m = all[version{uid: r.UID}]
	}
	if m.write == nil {
		return someone, nil
	}
	event := written(m.write)
	event.ResourceVersion = r.ResourceVersion
	if c.inputs.informers.Relisted(event) {
		return someone, nil
	}
	return m.by, m.write
}

// authorOfAll returns who made a key due since the failure that left p.
func (c *Controller[K]) authorOfAll(item workqueue.Item[K], p *lastRun) author {
	if p == nil || p.made == nil {
		return someone
	}
	reasons, dropped := item.Reasons()
	by := theKey
	if dropped > 0 || len(reasons) == 0 {
		by = perhaps
	}
	for i := range reasons {
		r := &reasons[i]
		if r.Source == sourceQueue && r.Event != workqueue.EventAdded && r.Event != workqueue.EventRequeueNow {
			continue // its own retry
		}
		a, _ := c.authorOf(p.made, r)
		by = min(by, a)
	}
	return by
}

const sourceQueue = "queue" // of the reasons of a workqueue.Queue

// haste returns how long after the start of the last attempt an event that is perhaps the key's own
// ends the backoff, after the number of attempts that such events have begun since the last event
// by others.
func haste(attempts int) time.Duration {
	if attempts == 0 {
		return 0
	}
	return time.Second << min(attempts-1, 10)
}

// isOwn implements workqueue.Options.Own.
func (c *Controller[K]) isOwn(key K, delivery uint64, reason workqueue.Reason) (own bool, within time.Duration) {
	p := c.records.look(key).past
	if p == nil || p.delivery != delivery {
		return false, 0
	}
	switch by, _ := c.authorOf(p.made, &reason); by {
	case theKey:
		c.ownEvents.Add(1)
		return true, 0
	case perhaps:
		within = p.began + haste(p.hasty) - c.now()
		return within > 0, within
	}
	return false, 0
}
