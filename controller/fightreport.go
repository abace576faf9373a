// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/ledger"
)

// contested is a fight that has become known.
type contested[K comparable] struct {
	key    K
	write  ledger.Write
	fields *fieldpath.Set
}

// leaveFight notes a Reconcile that may have written.
func (t *lead[K]) leaveFight(r *running[K], own []pendingWrite) {
	if len(own) == 0 {
		return
	}
	next := t.controller.nextFight(r, own)
	ask := next.known() && !next.asked && next.rounds > fightRounds+fightFree
	if ask {
		next.asked = true // there is always another cause, too
	}
	if r.fight.suspicious() && !r.spins && !next.known() { // next.answer is enough
		for i := range own {
			if w := &own[i]; !t.Decodes(schema.GroupResource{Group: w.Group, Resource: w.Resource}) {
				w.Object = nil
			}
		}
	}
	t.controller.records.edit(r.item.Key(), func(of *record[K]) { of.fight = next })
	if ask {
		t.report(r.item.Key(), next)
	}
}

func (t *lead[K]) report(key K, f *fight) {
	w := f.write(f.object)
	if w == nil {
		return
	}
	select {
	case t.fights <- contested[K]{key, *w, f.fields}:
	default: // many fights begin at once
	}
}

// reportFights reports fights until ctx ends.
func (t *lead[K]) reportFights(ctx context.Context) {
	for {
		select {
		case f := <-t.fights:
			t.reportFight(ctx, &f)
		case <-ctx.Done():
			return
		}
	}
}

func (t *lead[K]) reportFight(ctx context.Context, f *contested[K]) {
	c := t.controller
	by := t.opponents(ctx, f)
	c.records.edit(f.key, func(r *record[K]) {
		if r.fight != nil && r.fight.object == f.write.UID {
			now := *r.fight
			now.by = by
			r.fight = &now
		}
	})
	object, fields := f.write.String(), pathsOf(f.fields)
	c.o.Hook.Send(&hook.Fight{Controller: c.name, Key: fmt.Sprint(f.key), Write: object, Fields: fields, By: by})
	if args, ok := c.repetition.Few("fight", "", "key", fmt.Sprint(f.key), "write", object, "fields", fields, "by", by, "atMostEvery", spinMax.String()); ok {
		slog.New(t.log).Warn("slowed down a key that fights with another writer; let one of them own the field", args...)
	}
}

// opponents returns the field managers that own a field, but for those that do in the answer to the
// key's own write.
func (t *lead[K]) opponents(ctx context.Context, f *contested[K]) (by []string) {
	var own []string
	if answer, ok := f.write.Object.(handler.Object); ok {
		own = managersOf(answer.GetManagedFields(), f.fields)
	}
	ctx, cancel := context.WithTimeout(ctx, spinMax/2)
	defer cancel()
	now := managersOf(t.controller.inputs.informers.Managers(ctx, written(&f.write)), f.fields)
	return slices.DeleteFunc(now, func(m string) bool { return slices.Contains(own, m) })
}

func managersOf(all []metav1.ManagedFieldsEntry, fields *fieldpath.Set) (managers []string) {
	for i := range all {
		m := &all[i]
		contests := false
		fields.Iterate(func(p fieldpath.Path) { contests = contests || has(m, p) })
		if contests && !slices.Contains(managers, m.Manager) {
			managers = append(managers, m.Manager)
		}
	}
	return managers
}

// has reports whether a manager owns a field, or a part of it, such as an element of a list. It may
// own a field's parent without the field.
func has(m *metav1.ManagedFieldsEntry, field fieldpath.Path) (has bool) {
	var owned fieldpath.Set
	if m.FieldsV1 == nil || owned.FromJSON(m.FieldsV1.GetRawReader()) != nil {
		return false
	}
	owned.Leaves().Iterate(func(x fieldpath.Path) { has = has || len(x) >= len(field) && x[:len(field)].Equals(field) })
	return has
}

func pathsOf(fields *fieldpath.Set) (paths []string) {
	fields.Iterate(func(p fieldpath.Path) { paths = append(paths, p.String()) })
	return paths
}
