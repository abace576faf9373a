// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/consistency"
)

func (d *declarations) Behind(w consistency.Write) (missing consistency.Lag, unknowable error) {
	look := func(g *group, i *informer) {
		switch v, why := i.view.Shows(&w); {
		case w.Event != nil && v == consistency.Unclear: // a comparison of versions is all there is
		case v == consistency.Unclear && unknowable == nil:
			unknowable = why
		case v == consistency.Behind && missing == nil:
			missing = &lag{group: g, informer: i, written: i.view.Lingering(w)}
		}
	}
	for _, g := range d.groups() {
		if w.Batch != nil {
			for _, i := range g.informersFor(&w) {
				look(g, i)
			}
		} else if i := g.informerFor(&w); i != nil && (w.Event == nil || i.follows(&w)) {
			look(g, i)
		}
	}
	return missing, unknowable
}

func (d *declarations) Selects(r schema.GroupResource) bool {
	var last *Cache // most controllers have one
	for _, g := range d.groups() {
		if g.cache != last && g.cache.selects(r) {
			return true
		}
		last = g.cache
	}
	return false
}

func (d *declarations) Relisted(w consistency.Write) bool {
	return slices.ContainsFunc(d.groups(), func(g *group) bool {
		i := g.informerFor(&w)
		return i != nil && (i.relisted(w.ResourceVersion) || i.view.WasReset(&w))
	})
}

func (d *declarations) Missed(w consistency.Write) bool {
	if w.UID == "" || w.ResourceVersion == "" || w.Gone || w.Marked {
		return false
	}
	for _, g := range d.groups() {
		i := g.informerFor(&w)
		if i == nil || i.lw == nil {
			continue
		}
		if _, listed := i.lw.Listed(); !listed || !i.relisted(w.ResourceVersion) && !i.view.WasReset(&w) {
			continue
		}
		if stored := i.view.Stored(&w); (stored == nil || stored.GetUID() != w.UID) && !i.view.Excludes(&w) {
			return true
		}
	}
	return false
}

func (d *declarations) Shown(add func(host string, of schema.GroupResource, version string)) {
	type resource struct {
		host string
		schema.GroupResource
	}
	informers := map[resource][]*informer{}
	for _, g := range d.groups() {
		host := g.cache.host()
		g.first(func(i *informer) bool {
			// The API of one that waits is missing or forbidden, also for the next owner.
			if m := i.view.Mapping.Load(); m != nil && host != "" && i.Phase() != hook.Waiting {
				r := resource{host, m.Resource.GroupResource()}
				informers[r] = append(informers[r], i)
			}
			return false
		})
	}
	for r, all := range informers {
		// With several, such as one for each namespace, some may have no event at that version.
		if all = slices.Compact(all); len(all) == 1 && all[0].view.Newest() != "" {
			add(r.host, r.GroupResource, all[0].view.Newest())
		}
	}
}

func (d *declarations) Failing() consistency.Lag {
	for _, g := range d.groups() {
		if i := g.first((*informer).fails); i != nil {
			return &lag{group: g, informer: i, failing: true}
		}
	}
	return nil
}

func (d *declarations) Recovered() (last time.Time) {
	for _, g := range d.groups() {
		g.first(func(i *informer) bool {
			if phase, since, _ := i.at(); phase == hook.Synced && since.After(last) {
				last = since
			}
			return false
		})
	}
	return last
}

func (d *declarations) Resolve(ctx context.Context, w consistency.Write) (unseen []consistency.Write, fate consistency.Fate, err error) {
	if w.Batch != nil {
		unseen, err = d.compare(ctx, &w)
		return unseen, consistency.Decided, err
	}
	lists := map[place]*metav1.PartialObjectMetadataList{}
	for _, g := range d.groups() {
		i := g.informerFor(&w)
		if i == nil || i.view.Mapping.Load() == nil || i.env.backend == nil {
			continue // no informer, or it has not listed yet
		}
		at := i.key.place
		at.Namespace, at.Name = cmp.Or(w.Namespace, at.Namespace), cmp.Or(w.Name, at.Name)
		if lists[at] == nil {
			if lists[at], err = i.listMetadata(ctx, at); err != nil {
				return nil, consistency.Unkept, fmt.Errorf("cache: cannot find out what became of the write of %s: %w", w.String(), err)
			}
		}
		if fate = max(fate, consistency.Open); w.Decides(lists[at]) {
			fate = consistency.Decided
		}
		unseen = append(unseen, i.view.Compare(lists[at], at, &w)...)
	}
	return unseen, fate, nil
}

// compare returns what informers do not show that cannot decide about a batch otherwise.
func (d *declarations) compare(ctx context.Context, batch *consistency.Write) (unseen []consistency.Write, err error) {
	for _, g := range d.groups() {
		for _, i := range g.informersFor(batch) {
			m := i.view.Mapping.Load()
			if v, _ := i.view.Shows(batch); v != consistency.Unclear || m == nil || i.env.backend == nil {
				continue
			}
			list, err := i.key.target(i.env.backend).ListMetadata(ctx, m, 0)
			if err != nil {
				return nil, fmt.Errorf("cache: cannot compare %s with the API server: %w", i, err)
			}
			w := consistency.Write{Host: batch.Host, Resource: m.Resource.GroupResource(), In: &i.view}
			unseen = append(unseen, i.view.Compare(list, i.key.place, &w)...)
		}
	}
	return unseen, nil
}

// lag is an informer that does not show a write yet, or that fails.
type lag struct {
	group    *group
	informer *informer
	written  consistency.Write
	failing  bool // written is empty
}

func (g *lag) String() string {
	i, w := g.informer, &g.written
	if g.failing {
		return i.state().String()
	}
	name := i.key.kind()
	if words := i.key.String(); words != "" {
		name += " (" + words + ")"
	}
	var where string
	version := i.shared.GetStore().LastStoreSyncResourceVersion()
	switch phase, _, err := i.at(); {
	case phase == hook.Syncing:
		where = "is not synced"
	case err != nil:
		where = fmt.Sprintf("is %s (%v)", phase, err)
	case version == "":
		where = "is at an unknown version"
	default:
		where = "is at version " + version
	}
	what, at := "the write", ""
	switch {
	case w.Gone || w.Marked:
		what = "the deletion"
	case w.Event != nil:
		what = "the change"
	}
	if w.ResourceVersion != "" {
		at = " at " + w.ResourceVersion
	}
	return fmt.Sprintf("%s %s and does not show %s of %s%s", name, where, what, w, at)
}

func (g *lag) Failing() bool { return g.informer.fails() }

func (g *lag) Unread() bool { return !g.informer.HasSynced() }

func (g *lag) Unserved() bool { return g.informer.Phase() == hook.Waiting }

func (g *lag) Notify(to consistency.Waker) (cancel func()) {
	w := &g.written
	if g.failing {
		w = nil
	}
	return g.informer.view.Notify(w, &waiter{lag: g, Waker: to})
}

// waiter waits for the end of a lag.
type waiter struct {
	consistency.Waker
	lag *lag
}

func (w *waiter) Open() bool {
	g := w.lag
	if g.failing {
		return g.group.has(g.informer) && g.informer.fails()
	}
	if w := &g.written; w.Batch == nil && g.group.informerFor(w) != g.informer || !g.group.has(g.informer) {
		return false // the object's informer has left the scope
	}
	if g.written.Batch != nil && g.informer.view.Lingering(g.written).Batch == nil {
		return false // another lag follows: the deletion of an object that came meanwhile
	}
	v, _ := g.informer.view.Shows(&g.written)
	return v == consistency.Behind
}
