// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync/atomic"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

type ownEvents[K comparable] struct {
	declared consistency.Declarations
	records  *records[K]
	skipped  atomic.Int64 // events that did not end a backoff
}

// madeBy leaves out no-ops: their version is another client's.
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
		if w.Effect == ledger.Gone { // the answer may lack the version of the event
			made[version{uid: string(w.UID)}] = w
		}
		made[version{string(w.UID), w.ResourceVersion}] = w
	}
	return made
}

// isOwn reports whether an event shows only a write in made. After a relist it returns false,
// because an event may then stand for several changes.
func (o *ownEvents[K]) isOwn(made map[version]*ledger.Write, r *workqueue.Reason) bool {
	w := made[version{r.UID, r.ResourceVersion}]
	if w == nil && r.Event == string(handler.Delete) {
		w = made[version{uid: r.UID}]
	}
	if w == nil {
		return false
	}
	event := written(w)
	event.ResourceVersion = r.ResourceVersion
	return !o.declared.Relisted(event)
}

// is implements workqueue.Options.Own.
func (o *ownEvents[K]) is(key K, delivery uint64, reason workqueue.Reason) bool {
	p := o.records.look(key).past
	if p == nil || p.delivery != delivery || !o.isOwn(p.made, &reason) {
		return false
	}
	o.skipped.Add(1)
	return true
}
