// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Interruption is the cause of the context of a Reconcile that was cancelled because the object that its key names has moved on (see
// Options.Interrupt).
type Interruption struct {
	// Object is the object's namespace and name.
	Object string
	// Generation and ResourceVersion are those that it has now.
	Generation      int64
	ResourceVersion string
}

// Error says it in one sentence.
func (i *Interruption) Error() string {
	return fmt.Sprintf("%s has moved on to generation %d, at version %s", i.Object, i.Generation, i.ResourceVersion)
}

// Unwrap returns context.Canceled.
func (i *Interruption) Unwrap() error { return context.Canceled }

// interrupts cancels Reconciles whose objects move on (C12).
type interrupts[K comparable] struct {
	most    int // in a row; 0: none
	queue   *workqueue.Queue[K]
	workers *workers[K]
	records *records[K]
}

// interrupt cancels the Reconcile of a key that runs, if one does, because its object has moved on. Not because of what it has
// written itself, or the one before it, whose events may come after its start; nor where it is in doubt whether it has.
func (i *interrupts[K]) interrupt(key K, o handler.Object) {
	if state, _ := i.queue.Look(key); state.State != workqueue.Held || state.Paused { // one that is paused is to come to its end
		return
	}
	for _, s := range i.workers.now().slots {
		r := s.run.Load()
		if r == nil || r.item.Key() != key || i.records.look(key).interrupted >= i.most || r.mayHaveMade(o) {
			continue
		}
		r.cancel(&Interruption{
			Object: handler.Event{New: o}.Key().String(), Generation: o.GetGeneration(), ResourceVersion: o.GetResourceVersion(),
		})
	}
}

// mayHaveMade reports whether the Reconcile, or the one before it, may have written this version of the
// object.
func (r *running[K]) mayHaveMade(o handler.Object) bool {
	may := func(w ledger.Write) bool {
		if w.Effect == ledger.Pending || w.UID == "" || w.ResourceVersion == "" { // it may have been any version
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

// note notes how a Reconcile has ended: one that was cut short has not come to its end,
// whether its object has moved on or not.
func (i *interrupts[K]) note(key K, cutShort, movedOn bool) {
	before := i.records.look(key).interrupted
	switch {
	case cutShort && movedOn:
		i.records.edit(key, func(r *record[K]) { r.interrupted++ })
	case !cutShort && before > 0:
		i.records.edit(key, func(r *record[K]) { r.interrupted = 0 })
	}
}

func isInterruption(err error) bool {
	var i *Interruption
	return errors.As(err, &i)
}
