// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Interruption is the cause of a Reconcile's context that ended because the key's object changed.
// See [Options].Interrupt.
type Interruption struct {
	Object          string // namespace and name
	Generation      int64  // after the change
	ResourceVersion string // after the change
}

// Error names the object, its generation and its version.
func (i *Interruption) Error() string {
	return fmt.Sprintf("%s changed to generation %d, at version %s", i.Object, i.Generation, i.ResourceVersion)
}

// Unwrap returns context.Canceled.
func (i *Interruption) Unwrap() error { return context.Canceled }

type interrupts[K comparable] struct {
	most    int // limit in a row; 0 disables
	queue   *workqueue.Queue[K]
	workers *workers[K]
	records *records[K]
}

// interrupt cancels the running Reconcile of a key, unless the event may echo a write of this
// Reconcile or the one before.
func (i *interrupts[K]) interrupt(key K, o handler.Object) {
	// A paused key's Reconcile finishes.
	if state, _ := i.queue.Lookup(key); state.State != workqueue.Held || state.Paused {
		return
	}
	for _, r := range i.workers.now().running() {
		if r.item.Key() != key || i.records.look(key).interrupted >= i.most || r.mayHaveMade(o) {
			continue
		}
		r.cancel(&Interruption{
			Object: handler.Event{New: o}.Key().String(), Generation: o.GetGeneration(), ResourceVersion: o.GetResourceVersion(),
		})
	}
}

func (r *running[K]) mayHaveMade(o handler.Object) bool {
	may := func(w ledger.Write) bool {
		if w.Subresource == "status" { // its generation stays
			return false
		}
		if w.Effect == ledger.Pending || w.UID == "" || w.ResourceVersion == "" { // any version
			return w.Verb != "create" && w.Namespace == o.GetNamespace() && (w.Name == "" || w.Name == o.GetName())
		}
		return w.Effect != ledger.Unchanged && w.UID == o.GetUID() && w.ResourceVersion == o.GetResourceVersion()
	}
	if r.past != nil && slices.ContainsFunc(r.past.wrote, may) {
		return true
	}
	l := r.wrote()
	if l == nil {
		return false
	}
	_, lost := l.LeftOut()
	return lost > 0 || slices.ContainsFunc(l.Writes(), may)
}

func (i *interrupts[K]) note(key K, cutShort, movedOn bool) {
	before := i.records.look(key).interrupted
	switch {
	case cutShort && movedOn:
		i.records.edit(key, func(r *record[K]) { r.interrupted++ })
	case !cutShort && before > 0:
		i.records.edit(key, func(r *record[K]) { r.interrupted = 0 })
	}
}
