// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/consistency"
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

// state describes an object after a Reconcile's last write to it.
type state struct {
	rest  uint64   // hash of the fields that the Reconcile did not set
	asked []uint64 // hashes of those that it set, sorted
	shape uint64   // of its requests
}

type states map[types.UID]state

// statesOf leaves out objects if it does not know everything that the Reconcile asked for.
func statesOf(writes []pendingWrite) states {
	var all states
	var unknown []types.UID
	last := map[types.UID]*ledger.Content{}
	for i := range writes {
		w := &writes[i].Write
		switch {
		case w.UID == "" || w.Effect == "":
			continue
		case w.Content == nil && w.Verb != "create":
			unknown = append(unknown, w.UID)
			continue
		case w.Content == nil:
			continue
		}
		last[w.UID] = w.Content
		if all == nil {
			all = states{}
		}
		c := all[w.UID]
		if !slices.ContainsFunc(writes[:i], func(o pendingWrite) bool {
			return o.UID == w.UID && o.Content != nil && o.Content.Shape == w.Content.Shape
		}) {
			c.shape += w.Content.Shape // a repetition asks for the same
		}
		c.asked = append(c.asked, w.Content.Request...)
		all[w.UID] = c
	}
	for uid, c := range all {
		if slices.Contains(unknown, uid) {
			delete(all, uid)
			continue
		}
		slices.Sort(c.asked)
		c.asked = slices.Compact(c.asked)
		c.rest = restOf(last[uid], c.asked, nil)
		all[uid] = c
	}
	return all
}

// restOf is a hash of the fields of an answer that were not asked for. The order is no matter.
func restOf(c *ledger.Content, asked, before []uint64) (sum uint64) {
	for _, field := range c.Object {
		if _, found := slices.BinarySearch(asked, field); found {
			continue
		}
		if _, found := slices.BinarySearch(before, field); !found {
			sum += field
		}
	}
	return sum
}

// madeBy returns the versions in the answers. before describes the objects as the key's previous
// Reconcile left them.
func madeBy(writes []pendingWrite, before states) map[version]made {
	var all map[version]made
	var now states
	for i := range writes {
		w := &writes[i].Write
		// A no-op's version is another client's.
		if w.UID == "" || w.ResourceVersion == "" && w.Effect != ledger.Gone || w.Effect == ledger.Unchanged {
			continue
		}
		if all == nil {
			all, now = make(map[version]made, len(writes)), statesOf(writes)
		}
		m := made{w, perhaps}
		if w.Made || w.Content != nil && before.explain(w, now) {
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
	all := madeBy(p.known(), p.before)
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

// explain reports whether the object in an answer differs from the previous Reconcile's only in
// what this one has set.
func (before states) explain(w *ledger.Write, now states) bool {
	was, known := before[w.UID]
	is, complete := now[w.UID]
	return known && complete && was.shape == is.shape && restOf(w.Content, is.asked, was.asked) == was.rest
}

type ownEvents[K comparable] struct {
	informers consistency.Declarations
	records   *records[K]
	queue     *workqueue.Queue[K]
	now       func() time.Duration
	skipped   atomic.Int64 // events that did not end a backoff
}

// authorOf returns who made what an event shows. After a relist that is someone, because an event
// may then stand for several changes. So may one without a version.
func (o *ownEvents[K]) authorOf(all map[version]made, r *workqueue.Reason) (author, *ledger.Write) {
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
	if o.informers.Relisted(event) {
		return someone, nil
	}
	return m.by, m.write
}

// cause returns who made a key due since the Reconcile that left p.
func (o *ownEvents[K]) cause(item workqueue.Item[K], p *lastRun) author {
	if p == nil || !p.prove {
		return someone
	}
	all := p.versions()
	reasons, dropped := item.Reasons()
	if dropped > 0 {
		return someone
	}
	by := theKey
	for i := range reasons {
		r := &reasons[i]
		if r.Source == sourceQueue && r.Event != workqueue.EventAdded && r.Event != workqueue.EventRequeueNow {
			continue // its own retry
		}
		a, _ := o.authorOf(all, r)
		by = min(by, a)
	}
	return by
}

const sourceQueue = "queue" // of the reasons of a workqueue.Queue

// haste is how soon an event that is perhaps the key's own ends the backoff of an attempt that such
// an event has started.
const haste = time.Second

// is implements workqueue.Options.Own.
func (o *ownEvents[K]) is(key K, delivery uint64, reason workqueue.Reason) bool {
	p := o.records.look(key).past
	if p == nil || p.delivery != delivery {
		return false
	}
	by, _ := o.authorOf(p.made, &reason)
	switch {
	case by == theKey:
		o.skipped.Add(1)
		return true
	case by == perhaps && p.hasty:
		wait := p.began + haste - o.now()
		if wait > 0 {
			o.queue.AddWith(key, workqueue.AddOptions{After: wait, Reason: reason})
		}
		return wait > 0
	}
	return false
}
