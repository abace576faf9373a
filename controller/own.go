// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync/atomic"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// ownEvents recognizes the events of keys' own writes (C7).
type ownEvents[K comparable] struct {
	declared *cache.Declarations
	records  *records[K]
	skipped  atomic.Int64 // how many did not end a backoff
}

// mostAdded is how many are kept for one key. Of any others it is not known whether they are its own.
const mostAdded = 10_000

// note records what a key is added for while a Reconcile of it runs.
func (o *ownEvents[K]) note(key K, delivery uint64, how workqueue.How) {
	if how.Reason.UID == "" {
		return // it can be nobody's own
	}
	o.records.edit(key, func(r *record[K]) {
		if r.added == nil || r.added.delivery != delivery {
			r.added = &added{delivery: delivery}
		}
		if len(r.added.reasons) < mostAdded {
			r.added.reasons = append(r.added.reasons, how.Reason)
		}
	})
}

// take returns what a key was added for during a delivery, and forgets it.
func (o *ownEvents[K]) take(key K, delivery uint64) (reasons []workqueue.Reason) {
	if o.records.look(key).added == nil {
		return nil
	}
	o.records.edit(key, func(r *record[K]) {
		if r.added != nil && r.added.delivery == delivery {
			reasons = r.added.reasons
		}
		r.added = nil
	})
	return reasons
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

// isOwn reports whether an event shows a write in made, and nothing else (C7). After a relist an event
// may stand for several changes: then it is not.
func (o *ownEvents[K]) isOwn(made map[version]*ledger.Write, r *workqueue.Reason) bool {
	w := made[version{r.UID, r.ResourceVersion}]
	if w == nil && r.Event == handler.Delete.String() {
		w = made[version{uid: r.UID}]
	}
	if w == nil {
		return false
	}
	event := written(w)
	event.ResourceVersion = r.ResourceVersion
	return !o.declared.Relisted(event)
}

// withdraw takes back what the key was added for because of its own writes.
func (o *ownEvents[K]) withdraw(item workqueue.Item[K], made map[version]*ledger.Write, reasons []workqueue.Reason) {
	own := 0
	for i := range reasons {
		if o.isOwn(made, &reasons[i]) {
			own++
		}
	}
	if own > 0 && item.Withdraw(own) == nil {
		o.skipped.Add(int64(own))
	}
}

// skip reports whether an event is the key's own write, which does not end its backoff.
func (o *ownEvents[K]) skip(key K, delivery uint64, how workqueue.How) bool {
	p := o.records.look(key).past
	if p == nil || p.delivery != delivery || !o.isOwn(p.made, &how.Reason) {
		return false
	}
	o.skipped.Add(1)
	return true
}

// options has the queue ask about what may be a key's own events, besides what the user has it ask.
func (o *ownEvents[K]) options(q workqueue.Options[K]) workqueue.Options[K] {
	tell, skip := q.AddedWhileHeld, q.SkipInBackoff
	q.AddedWhileHeld = func(key K, delivery uint64, how workqueue.How) {
		o.note(key, delivery, how)
		if tell != nil {
			tell(key, delivery, how)
		}
	}
	q.SkipInBackoff = func(key K, delivery uint64, how workqueue.How) bool {
		return o.skip(key, delivery, how) || skip != nil && skip(key, delivery, how)
	}
	return q
}
