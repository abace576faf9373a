// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/internal/traceparent"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// See "Fights" in the package doc.
const (
	fightFree   = 10
	fightRounds = 3
	fightGap    = time.Minute

	mostFights = 16 // that wait for their report
)

// fight describes a key whose written objects are changed by others, again and again. It is
// replaced, never changed.
type fight struct {
	writes []pendingWrite // of the last Reconcile that has written
	wrote  time.Duration  // its start
	object types.UID      // the one that is counted
	row    int            // Reconciles that have written it again after a change by others
	last   time.Duration  // start of the last of these
	paused bool           // the key is put off
	answer handler.Object // the key's last write of the object; nil before fightFree
	fields *fieldpath.Set // what both have changed in the last round, or nil
	rounds int            // rounds in a row with such fields
	asked  bool           // who the others are
	by     []string       // the field managers of the others, as far as they are known
}

// known reports whether it is a fight. One round may be a person who has changed a field once.
func (f *fight) known() bool { return f != nil && f.rounds >= fightRounds }

func (f *fight) pause() time.Duration {
	if !f.known() {
		return 0
	}
	return min(spinMax, spinBase<<min(f.rounds-fightRounds, 10))
}

// suspicious reports whether the answers to the next Reconcile's writes are kept.
func (f *fight) suspicious() bool { return f != nil && f.row >= fightFree-1 }

// over reports whether the record can be forgotten.
func (f *fight) over(now time.Duration) bool {
	return now-max(f.last, f.wrote) > f.pause()+fightGap
}

// fights reports whether a fight is known and goes on.
func (f *fight) fights(now time.Duration) bool { return f.known() && now-f.last < 3*spinMax }

// round is a Reconcile after others have changed an object that the key has written.
type round struct {
	object types.UID
	alone  bool           // there is no other cause
	theirs handler.Object // the object then; nil before fightFree
	found  *fieldpath.Set // what the others have changed
}

// chased returns the object whose events by others made the key due. alone is false if it is also
// due for another reason, such as a call of Requeue, or perhaps.
func (c *Controller[K]) chased(item workqueue.Item[K], f *fight) (object types.UID, alone bool) {
	if f == nil {
		return "", false
	}
	// Most events are the key's own, or of other objects. Then nothing is copied.
	newest, _ := item.NewestReason()
	switch w := f.write(types.UID(newest.UID)); {
	case newest.Source == sourceQueue && f.paused:
	case w == nil || w.ResourceVersion == newest.ResourceVersion:
		return "", false
	}
	made, events := madeBy(f.writes), 0
	reasons, dropped := item.Reasons()
	alone = dropped == 0
	for i := range reasons {
		r := &reasons[i]
		if r.Source == sourceQueue {
			alone = alone && r.Event != workqueue.EventAdded && r.Event != workqueue.EventRequeueNow
			continue
		}
		events++
		by, _ := c.authorOf(made, r)
		switch {
		case r.Event != string(handler.Update): // a replay, or the end of the object
			alone = false
		case by != someone:
		case object == "" && f.write(types.UID(r.UID)) != nil:
			object = types.UID(r.UID)
		case string(object) != r.UID:
			alone = false
		}
	}
	if events == 0 && f.paused {
		object = f.object
	}
	return object, alone
}

// write returns the key's last write of an object, or nil.
func (f *fight) write(object types.UID) (w *ledger.Write) {
	for i := range f.writes {
		if f.writes[i].UID == object && object != "" && f.writes[i].Effect == ledger.Stored {
			w = &f.writes[i].Write
		}
	}
	return w
}

// contest returns the round that a Reconcile would be, or nil.
func (c *Controller[K]) contest(item workqueue.Item[K], f *fight) *round {
	object, alone := c.chased(item, f)
	if object == "" || f.write(object) == nil {
		return nil
	}
	r := &round{object: object, alone: alone}
	if f.object == object && f.row >= fightFree {
		r.theirs, _ = c.inputs.informers.Latest(written(f.write(object)))
		if r.theirs != nil && f.answer != nil {
			r.found = fieldsOf(f.answer, r.theirs)
		}
	}
	return r
}

// slowFight puts off a key if others have only changed what is fought for. The first time it waits
// longer, so that the API server can be asked who they are.
func (t *lead[K]) slowFight(item workqueue.Item[K], of *record[K], r *round) bool {
	if r == nil || !r.alone || r.found == nil || !of.fight.known() || !r.found.Difference(of.fight.fields).Empty() {
		return false
	}
	c, next := t.controller, *of.fight
	wait := next.last + next.pause() - c.now()
	if !next.asked {
		wait = spinMax
		t.report(item.Key(), &next)
	}
	if wait <= 0 {
		return false
	}
	next.paused, next.asked = true, true
	c.records.edit(item.Key(), func(r *record[K]) { r.fight = &next })
	c.delay(item, of, wait)
	return true
}

// beginFight ends the pause of a key whose Reconcile begins.
func (c *Controller[K]) beginFight(key K, f *fight) *fight {
	if f == nil || !f.paused {
		return f
	}
	begun := *f
	begun.paused = false
	c.records.edit(key, func(r *record[K]) { r.fight = &begun })
	return &begun
}

// nextFight returns what a Reconcile leaves behind that has written.
func (c *Controller[K]) nextFight(of *running[K], own []pendingWrite) (next *fight) {
	r, f := of.round, of.fight
	next = &fight{writes: own, wrote: of.since}
	if f == nil || f.over(of.since) {
		f = &fight{}
	}
	if r == nil || next.write(r.object) == nil {
		if f.row > 0 {
			kept := *f
			kept.writes, kept.wrote = append(f.of(f.object), own...), of.since // a copy
			next = &kept
		}
		return next
	}
	next.object, next.row, next.last = r.object, 1, of.since
	if f.object == r.object {
		next.row, next.rounds, next.asked, next.by = f.row+1, f.rounds, f.asked, f.by
	}
	if next.row < fightFree {
		return next
	}
	_, next.answer = c.inputs.informers.Latest(written(next.write(r.object)))
	if r.found == nil || next.answer == nil {
		return next
	}
	if next.fields = fieldsOf(r.theirs, next.answer).Intersection(r.found); next.fields.Empty() {
		next.fields, next.rounds = nil, 0
	} else {
		next.rounds++
	}
	return next
}

// of returns the last write of an object that it has not deleted, in a list.
func (f *fight) of(object types.UID) []pendingWrite {
	for i := range slices.Backward(f.writes) {
		if f.writes[i].UID == object && f.writes[i].Effect == ledger.Stored {
			return f.writes[i : i+1 : i+1]
		}
	}
	return nil
}

// fieldsOf returns the paths of the fields that differ, but for those that each write changes. A
// list is one field.
func fieldsOf(a, b handler.Object) *fieldpath.Set {
	x, y := untyped(a), untyped(b)
	if x == nil || y == nil {
		return fieldpath.NewSet()
	}
	c, err := x.Compare(y)
	if err != nil {
		return fieldpath.NewSet()
	}
	return c.Added.Union(c.Removed).Union(c.Modified).Leaves()
}

func untyped(o handler.Object) *typed.TypedValue {
	m, err := contentOf(o)
	if err != nil {
		return nil
	}
	m = maps.Clone(m) // it is the object's own if that is unstructured
	delete(m, "kind")
	delete(m, "apiVersion")
	if of, ok := m["metadata"].(map[string]any); ok {
		of = maps.Clone(of)
		m["metadata"] = of
		for _, field := range []string{"resourceVersion", "generation", "managedFields", "creationTimestamp"} {
			delete(of, field)
		}
		traceparent.Remove(of)
	}
	v, err := typed.DeducedParseableType.FromUnstructured(m)
	if err != nil {
		return nil
	}
	return v
}

// contentOf may call code of the object's type.
func contentOf(o handler.Object) (m map[string]any, err error) {
	defer run.Recover(&err)
	return runtime.DefaultUnstructuredConverter.ToUnstructured(o)
}
