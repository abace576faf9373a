// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/why"
)

const (
	mostChanges = 20  // fields of an answer with values
	mostText    = 200 // bytes of a value
)

// describeValues has the values behind an answer, one field in a line.
func (c *Controller[K]) describeValues(key K, reason why.Reason) []string {
	r := c.records.look(key)
	switch {
	case reason == why.HotLoop && r.past != nil:
		if before, w := r.past.lastChange(); w != nil {
			after, _ := w.Object.(handler.Object)
			return changes(w, "%s: its last write changed %s to %s", before, after, fieldsOf(before, after))
		}
	case reason == why.Fight && r.fight.known() && r.fight.answer != nil:
		if w := r.fight.write(r.fight.object); w != nil {
			if now, _ := c.inputs.informers.Latest(written(w)); now != nil {
				return changes(w, "%s: this controller wrote %s, and the cache has %s", r.fight.answer, now, r.fight.fields)
			}
		}
	}
	return nil
}

// lastChange returns the newest write with an object that the key has written before, and that
// object before it, or nil.
func (p *lastRun) lastChange() (before handler.Object, w *ledger.Write) {
	known := p.known()
	for i := range known {
		after := &known[i].Write
		if _, ok := after.Object.(handler.Object); !ok {
			continue
		}
		for _, was := range p.visible {
			if o, ok := was.Object.(handler.Object); ok && was.UID == after.UID && was.ResourceVersion != after.ResourceVersion {
				before, w = o, after
			}
		}
	}
	return before, w
}

// changes describes fields of two states of an object.
func changes(w *ledger.Write, format string, a, b handler.Object, fields *fieldpath.Set) (lines []string) {
	if hides(w.Group, w.Resource, a) {
		return []string{hidden}
	}
	x, errX := contentOf(a)
	y, errY := contentOf(b)
	if errX != nil || errY != nil || fields == nil {
		return nil
	}
	fields.Iterate(func(p fieldpath.Path) {
		if len(lines) < mostChanges {
			lines = append(lines, fmt.Sprintf(format, p, valueAt(x, p), valueAt(y, p)))
		}
	})
	return lines
}

// valueAt returns the JSON of a field, or "none".
func valueAt(o map[string]any, p fieldpath.Path) string {
	var v any = o
	for _, e := range p {
		m, ok := v.(map[string]any)
		if !ok || e.FieldName == nil { // a list is one field
			return "none"
		}
		v = m[*e.FieldName]
	}
	if v == nil {
		return "none"
	}
	text, err := json.Marshal(v)
	switch {
	case err != nil:
		return err.Error()
	case len(text) > mostText:
		return fmt.Sprintf("%s… (%d bytes)", text[:mostText], len(text))
	}
	return string(text)
}
