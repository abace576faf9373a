// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"sync/atomic"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// news is what keys were added for while a Reconcile of them ran.
type news[K comparable] struct {
	n atomic.Int64 // how many keys there are

	mu   sync.Mutex // guards what follows
	keys map[K]*added
}

// added is what one key was added for.
type added struct {
	delivery uint64
	reasons  []workqueue.Reason
}

// mostNews is how many are kept for one key. Of any others it is not known whether they are its own.
const mostNews = 10_000

func (n *news[K]) note(key K, delivery uint64, how workqueue.How) {
	if how.Reason.UID == "" {
		return // it can be nobody's own
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.keys == nil {
		n.keys = map[K]*added{}
	}
	a := n.keys[key]
	if a == nil {
		a = &added{}
		n.keys[key] = a
		n.n.Store(int64(len(n.keys)))
	}
	if a.delivery != delivery {
		a.delivery, a.reasons = delivery, a.reasons[:0]
	}
	if len(a.reasons) < mostNews {
		a.reasons = append(a.reasons, how.Reason)
	}
}

// take returns what a key was added for during a delivery, and forgets it.
func (n *news[K]) take(key K, delivery uint64) []workqueue.Reason {
	if n.n.Load() == 0 {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	a := n.keys[key]
	if a == nil {
		return nil
	}
	delete(n.keys, key)
	n.n.Store(int64(len(n.keys)))
	if a.delivery != delivery {
		return nil
	}
	return a.reasons
}

// sweep forgets the keys that nobody holds: their delivery was over when they were noted.
func (n *news[K]) sweep(held func(K) bool) {
	n.mu.Lock()
	keys := make([]K, 0, len(n.keys))
	for key := range n.keys {
		keys = append(keys, key)
	}
	n.mu.Unlock()
	for _, key := range keys {
		if !held(key) {
			n.take(key, 0)
		}
	}
}

// madeBy lists the versions that the writes have made, for isOwn. One that has changed nothing has made none: the version is that of
// whoever wrote before.
func madeBy(writes []unseen) map[version]*ledger.Write {
	var made map[version]*ledger.Write
	for i := range writes {
		w := &writes[i].Write
		if w.UID == "" || w.ResourceVersion == "" && w.Effect != ledger.Gone || w.Effect == ledger.Unchanged {
			continue
		}
		if made == nil {
			made = make(map[version]*ledger.Write, len(writes))
		}
		if w.Effect == ledger.Gone { // the event of a delete has a version that nobody was told of
			made[version{uid: string(w.UID)}] = w
		}
		made[version{string(w.UID), w.ResourceVersion}] = w
	}
	return made
}

// isOwn says whether an event is that of a write that is in made, and of nothing else (C7). After a relist an event may stand for
// several changes: then it is not.
func (c *Controller[K]) isOwn(made map[version]*ledger.Write, r *workqueue.Reason) bool {
	w := made[version{r.UID, r.ResourceVersion}]
	if w == nil && r.Event == handler.Delete.String() {
		w = made[version{uid: r.UID}]
	}
	if w == nil {
		return false
	}
	event := written(w)
	event.ResourceVersion = r.ResourceVersion
	return !c.declared.Relisted(event)
}

// withdraw takes back what the key was added for because of its own writes.
func (c *Controller[K]) withdraw(item workqueue.Item[K], made map[version]*ledger.Write, reasons []workqueue.Reason) {
	own := 0
	for i := range reasons {
		if c.isOwn(made, &reasons[i]) {
			own++
		}
	}
	if own > 0 && item.Withdraw(own) == nil {
		c.ownEvents.Add(int64(own))
	}
}

// skipInBackoff says whether an event is the key's own write, which does not end its backoff.
func (c *Controller[K]) skipInBackoff(key K, delivery uint64, how workqueue.How) bool {
	p := c.journal.look(key)
	if p == nil || p.delivery != delivery || !c.isOwn(p.made, &how.Reason) {
		return false
	}
	c.ownEvents.Add(1)
	return true
}

// withOwnEvents has the queue ask about what may be a key's own events, besides what the user has it ask.
func (c *Controller[K]) withOwnEvents(q workqueue.Options[K]) workqueue.Options[K] {
	tell, skip := q.AddedWhileHeld, q.SkipInBackoff
	q.AddedWhileHeld = func(key K, delivery uint64, how workqueue.How) {
		c.news.note(key, delivery, how)
		if tell != nil {
			tell(key, delivery, how)
		}
	}
	q.SkipInBackoff = func(key K, delivery uint64, how workqueue.How) bool {
		return c.skipInBackoff(key, delivery, how) || skip != nil && skip(key, delivery, how)
	}
	return q
}
