// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// mostEvents limits the events of a key. An informer that shows a later one has passed the earlier
// ones, so the newest count.
const mostEvents = 32

// event is a change that made a key due, and that another informer of the resource did not show.
type event struct {
	consistency.Write

	how workqueue.AddOptions
}

// expect records an event of a handle for its keys, unless all informers show it already. Call it
// before the keys are added. served reports whether this controller reconciles a key.
func (k *visibility[K]) expect(handle any, keys []K, how workqueue.AddOptions, served func(K) bool) {
	if k.bound < 0 || !k.informers.Doubles(handle) {
		return
	}
	r := &how.Reason
	namespace, name, _ := strings.Cut(r.Object, string(types.Separator))
	w, ok := k.informers.Event(handle, consistency.Write{
		Namespace: namespace, Name: name, UID: types.UID(r.UID), ResourceVersion: r.ResourceVersion,
		Gone: r.Event == string(handler.Delete),
	})
	if !ok || !k.isBehind(&w) {
		return
	}
	for _, key := range keys {
		if served(key) {
			k.records.edit(key, func(r *record[K]) { r.events = noted(r.events, event{w, how}) })
		}
	}
}

func (k *pendingWrites) isBehind(w *consistency.Write) bool {
	missing, _ := k.informers.Behind(*w)
	return missing != nil
}

// noted returns a copy with an event, in place of earlier ones of the same object.
func noted(events []event, e event) []event {
	rest := slices.DeleteFunc(slices.Clone(events), func(other event) bool {
		return other.Event.By == e.Event.By && other.Namespace == e.Namespace && other.Name == e.Name
	})
	return append(rest[max(0, len(rest)+1-mostEvents):], e)
}

// awaitEvents makes a taken key wait for its events, as it waits for its own writes.
func (k *pendingWrites) awaitEvents(events []event, p *lastRun) *lastRun {
	var behind []pendingWrite
	for i := range events {
		if e := &events[i]; k.isBehind(&e.Write) {
			behind = append(behind, pendingWrite{carried: true, resolved: true, instead: []consistency.Write{e.Write}, event: e})
		}
	}
	if behind == nil {
		return p
	}
	if p == nil {
		p = &lastRun{}
	}
	p.writes = slices.Concat(behind, p.writes)
	return p
}

// pendingEvents forgets a key's events that all informers show, and returns the others.
func (k *visibility[K]) pendingEvents(key K) (behind []event) {
	if len(k.records.look(key).events) == 0 {
		return nil
	}
	var all []event
	k.records.edit(key, func(r *record[K]) { all, r.events = r.events, nil })
	behind = slices.DeleteFunc(slices.Clone(all), func(e event) bool { return !k.isBehind(&e.Write) })
	if len(behind) > 0 {
		k.records.edit(key, func(r *record[K]) {
			newer := r.events
			r.events = behind
			for _, e := range newer {
				r.events = noted(r.events, e)
			}
		})
	}
	return behind
}

// settled forgets the events that all informers show after their initial lists. Call it before
// workers take keys.
func (k *visibility[K]) settled() {
	for key := range k.records.all() {
		k.pendingEvents(key)
	}
}

// requeueWhenSeen makes a key due when an informer shows an event that its Reconcile did not see in
// time.
func (k *visibility[K]) requeueWhenSeen(key K, p *lastRun) {
	for i := range p.writes {
		w := &p.writes[i]
		if w.state != writeGivenUp || w.event == nil {
			continue
		}
		if missing, _ := k.lagOf(w); missing != nil {
			p.unnotify = missing.Notify(&heldEvent[K]{parkedKey[K]{k.queue, key}, w.event.how})
			return
		}
	}
}
