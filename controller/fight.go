// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
func (f *fight) write(object types.UID) *ledger.Write { return lastWrite(f.writes, object) }

func lastWrite(writes []pendingWrite, object types.UID) (w *ledger.Write) {
	for i := range writes {
		if writes[i].UID == object && object != "" && writes[i].Effect == ledger.Stored {
			w = &writes[i].Write
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
	if r == nil || !r.alone || r.found == nil || !of.fight.known() || !contestedOnly(r.found, of.fight.fields) {
		return false
	}
	c, next := t.controller, *of.fight
	wait, ask := next.last+next.pause()-c.now(), !next.asked
	if ask {
		wait = spinMax
	}
	if wait <= 0 {
		return false
	}
	next.paused, next.asked = true, true
	c.records.edit(item.Key(), func(r *record[K]) { r.fight = &next })
	if ask { // now, because the answer is noted in the record
		t.report(item.Key(), &next)
	}
	c.delay(item, of, wait)
	return true
}

// contestedOnly reports whether others have changed nothing but fields that are fought for, and the
// status, which follows them. So the status of a fought object may be seen a second later.
func contestedOnly(found, fields *fieldpath.Set) bool {
	only := true
	found.Difference(fields).Iterate(func(p fieldpath.Path) { only = only && inStatus(p) })
	return only
}

func inStatus(p fieldpath.Path) bool {
	return len(p) > 1 && p[0].FieldName != nil && *p[0].FieldName == "status"
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
	if f == nil || f.over(of.since) {
		f = &fight{}
	}
	kept := *f
	kept.writes, kept.wrote = merged(f.writes, own), of.since
	next = &kept
	if r == nil || lastWrite(own, r.object) == nil {
		if next.row == 0 && !slices.ContainsFunc(next.writes, rewrites) {
			return nil
		}
		// What this write has changed is no change by others.
		if w := lastWrite(own, next.object); w != nil && next.answer != nil {
			_, next.answer = c.inputs.informers.Latest(written(w))
		}
		return next
	}
	if f.object != r.object {
		next.row, next.rounds, next.asked, next.by = 0, 0, false, nil
	}
	next.object, next.last, next.answer, next.fields = r.object, of.since, nil, nil
	if next.row++; next.row < fightFree {
		return next
	}
	w := next.write(r.object)
	_, next.answer = c.inputs.informers.Latest(written(w))
	if r.found == nil || next.answer == nil {
		return next
	}
	if next.fields = ownOf(fieldsOf(r.theirs, next.answer).Intersection(r.found), w); next.fields.Empty() {
		next.fields, next.rounds = nil, 0
	} else {
		next.rounds++
	}
	return next
}

// rewrites reports whether a write has changed an object that was there before.
func rewrites(w pendingWrite) bool { return w.Effect == ledger.Stored && w.Verb != "create" }

// mostContested is how many objects of a key are watched for changes by others.
const mostContested = 8

// merged returns a key's writes, and its last write of each other object before.
func merged(before, own []pendingWrite) []pendingWrite {
	all := slices.Clone(own)
	for i := range slices.Backward(before) {
		w := &before[i]
		if len(all) < mostContested && w.Effect == ledger.Stored && !slices.ContainsFunc(all, func(o pendingWrite) bool { return o.UID == w.UID }) {
			all = append(all, *w)
		}
	}
	return all
}

// ownOf returns the fields that a write has set or removed. Others may have changed the rest
// between the state that the key has seen, and the write.
func ownOf(fields *fieldpath.Set, w *ledger.Write) *fieldpath.Set {
	own := fieldpath.NewSet()
	var managers []metav1.ManagedFieldsEntry
	if answer, ok := w.Object.(handler.Object); ok { // a cache may leave them out
		managers = answer.GetManagedFields()
	}
	fields.Iterate(func(p fieldpath.Path) {
		if w.Subresource == "status" && !inStatus(p) {
			return
		}
		owned, mine := false, false
		for i := range managers {
			if m := &managers[i]; has(m, p) {
				owned = true
				mine = mine || m.Subresource == w.Subresource && (w.FieldManager == "" || w.FieldManager == m.Manager)
			}
		}
		if mine || !owned {
			own.Insert(p)
		}
	})
	return own
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
