// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// InterruptedError is the cause of a Reconcile's context that ended because the key's object
// changed. See [Options].MaxInterrupts.
type InterruptedError struct {
	Object          string // namespace and name
	Generation      int64  // after the change
	ResourceVersion string // after the change
}

// Error names the object, its generation and its version.
func (i *InterruptedError) Error() string {
	return fmt.Sprintf("%s changed to generation %d, at version %s", i.Object, i.Generation, i.ResourceVersion)
}

// Unwrap returns context.Canceled.
func (i *InterruptedError) Unwrap() error { return context.Canceled }

// answerWithin is how long after its event the answer to a write may come. Usually it is
// milliseconds. After that, an event counts as another client's.
const answerWithin = time.Second

// interrupt cancels the running Reconcile of a key, unless the event may echo a write of this
// Reconcile or the one before.
func (c *Controller[K]) interrupt(key K, e changed) {
	for _, r := range c.pool.state().running() {
		if r.item.Key() == key {
			c.judge(r, &e, true)
		}
	}
}

func (c *Controller[K]) judge(r *running[K], e *changed, patient bool) {
	key := r.item.Key()
	state, _ := c.queue.Lookup(key)
	// A paused key's Reconcile finishes.
	if r.Err() != nil || state.State != workqueue.Held || state.Paused || c.records.look(key).interrupted >= c.o.MaxInterrupts {
		return
	}
	switch by := r.madeBy(e); {
	case by == theKey:
	case by == perhaps && patient:
		r.doubts.lookAgain(answerWithin, func() { c.judge(r, e, false) })
	default:
		o := e.event.New
		r.cancel(&InterruptedError{Object: e.event.Key().String(), Generation: o.GetGeneration(), ResourceVersion: o.GetResourceVersion()})
	}
}

// doubts are calls that wait for an answer while a Reconcile runs.
type doubts struct {
	mu    sync.Mutex
	ended bool
	stops []func()
}

func (d *doubts) lookAgain(after time.Duration, f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended {
		d.stops = append(d.stops, run.After(after, f))
	}
}

// end waits for a call that has begun.
func (d *doubts) end() {
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	for _, stop := range d.stops {
		stop()
	}
}

// madeBy returns who made a change: the key also if it may have, perhaps if an answer will tell.
func (r *running[K]) madeBy(c *changed) author {
	var writes []ledger.Write
	if l := r.wrote(); l != nil {
		if _, lost := l.LeftOut(); lost > 0 {
			return theKey
		}
		writes = l.Writes()
	}
	if r.past != nil {
		for _, w := range r.past.own() {
			writes = append(writes, w.Write)
		}
	}
	by := someone
	for n := range writes {
		by = max(by, c.madeBy(&writes[n]))
	}
	return by
}

// changed is an update of a key's object.
type changed struct {
	event    handler.Event
	host     string               // of its API server
	resource schema.GroupResource // empty: host and resource are unknown
}

func (c *changed) madeBy(w *ledger.Write) author {
	o := c.event.New
	switch deletes := w.Deletes(); {
	case w.Subresource == "status": // its generation stays
		return someone
	case !c.resource.Empty() && (w.Host != c.host || w.Group != c.resource.Group || w.Resource != c.resource.Resource):
		return someone // a child often has the same name
	case w.Effect != ledger.Pending && w.UID != "" && w.ResourceVersion != "":
		if w.Effect != ledger.Unchanged && w.UID == o.GetUID() && w.ResourceVersion == o.GetResourceVersion() {
			return theKey
		}
		return someone
	case w.Verb == "create" && !deletes, w.Namespace != o.GetNamespace(), w.Name != "" && w.Name != o.GetName():
		return someone
	case deletes:
		if c.event.Old.GetDeletionTimestamp() == nil && o.GetDeletionTimestamp() != nil {
			return theKey
		}
		return someone
	case w.Effect != ledger.Pending && w.Effect != ledger.Uncertain:
		return theKey
	case w.Effect == ledger.Pending:
		return perhaps
	}
	return someone
}

func (c *Controller[K]) noteInterrupt(key K, cutShort, movedOn bool) {
	before := c.records.look(key).interrupted
	switch {
	case cutShort && movedOn:
		c.records.edit(key, func(r *record[K]) { r.interrupted++ })
	case !cutShort && before > 0:
		c.records.edit(key, func(r *record[K]) { r.interrupted = 0 })
	}
}
