// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/internal/consistency"
)

// findDoubles finds the groups of one resource that do not have the same informers: two forms,
// storages, versions, selectors or sets of namespaces.
func (n *declared) findDoubles() {
	for at, g := range n.groups {
		for _, other := range n.groups[:at] {
			if !g.doubles(other) {
				continue
			}
			if n.doubles == nil {
				n.doubles = map[*group]bool{}
			}
			n.doubles[g], n.doubles[other] = true, true
		}
	}
}

func (g *group) doubles(other *group) bool {
	if g == other || g.sameScope(other) {
		return false
	}
	if a, b := g.key.gvk, other.key.gvk; a.Version != "" && b.Version != "" && !sameKind(a.GroupKind(), b.GroupKind()) {
		return false // a kind without a version is a guess
	}
	host, of := g.cache.host(), other.cache.host()
	return host == of || host == "" || of == ""
}

// sameKind reports whether two kinds are one resource. Events are served in two groups.
func sameKind(a, b schema.GroupKind) bool {
	return a == b || a.Kind == "Event" && b.Kind == "Event" && isEvents(a.Group) && isEvents(b.Group)
}

func isEvents(group string) bool { return group == "" || group == "events.k8s.io" }

func (d *declarations) Doubles(handle any) bool {
	n := d.now.Load()
	return n != nil && n.doubles[scopeOf(handle)]
}

func (d *declarations) Event(handle any, w consistency.Write) (event consistency.Write, ok bool) {
	g := scopeOf(handle)
	if g == nil {
		return w, false
	}
	i := g.memberOf(&w)
	if i == nil || i.Outside(&w) {
		return w, false
	}
	if w.Host, ok = d.hostOf(g); !ok {
		return w, false
	}
	w.Resource = i.view.Resource()
	w.Event = &consistency.Event{At: time.Now(), By: g}
	if w.Gone {
		known := i.lw != nil && g.key.slots == nil
		w.Event.Missed = known && i.relisted(w.ResourceVersion) // a watch has later versions only
		w.Event.Leaves = !known || g.key.labels != "" || g.key.fields != ""
	}
	return w, true
}

func (d *declarations) Host(handle any) string {
	if g := scopeOf(handle); g != nil {
		return g.cache.host()
	}
	return ""
}

func (d *declarations) Hosts() int {
	hosts := map[string]bool{}
	for _, g := range d.groups() {
		if host := g.cache.host(); host != "" {
			hosts[host] = true
		}
	}
	return len(hosts)
}

// memberOf is informerFor for an object that the group has delivered.
func (g *group) memberOf(w *consistency.Write) *informer {
	m := g.members.Load()
	if m.everything != nil {
		return m.everything
	}
	return m.informerFor(w)
}

// hostOf returns the API server of a group's events. An adopted informer without a Backend is of
// the only one, if there is no other.
func (d *declarations) hostOf(of *group) (host string, ok bool) {
	if host = of.cache.host(); host != "" {
		return host, true
	}
	for _, g := range d.groups() {
		switch other := g.cache.host(); {
		case other == "" || other == host:
		case host != "":
			return "", false
		default:
			host = other
		}
	}
	return host, true
}

// follows reports whether the informer has to show an event of another one. It fills in what the
// selectors need to know: the object's newest state at the other one.
func (i *informer) follows(w *consistency.Write) bool {
	by, ok := w.Event.By.(*group)
	if !ok {
		return false
	}
	from := by.memberOf(w)
	if from == i || from != nil && storedIndexer(from.shared) == storedIndexer(i.shared) || i.fails() && !i.HasSynced() {
		return false
	}
	if from != nil && from.wentBack(w.ResourceVersion) && i.wentBack(w.ResourceVersion) {
		return false // a blocked handler has delivered it late
	}
	if from == nil || w.Gone || i.view.Labels == nil && i.view.Fields == nil && i.key.slots == nil {
		return true
	}
	stored := from.view.Stored(w)
	if i.view.Fields != nil { // they are needed
		stored, _ = whole(stored).(Object) // nil if it does not fit its type
	}
	if stored != nil {
		w.Object = stored
	}
	return true
}
