// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"cmp"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/consistency"
)

// Behind reports which declared informer does not show a write yet. It returns nil and nil if all
// informers that keep the object show the write, which is cheap, or if none keeps it. Otherwise,
// wait for the gap for a limited time, and call Behind again. The error names an informer that
// cannot decide, for example because versions are not numbers or it does not run.
func (d *Declarations) Behind(w Written) (gap *Gap, unknowable error) {
	for _, g := range d.groups() {
		i := g.keeper(&w)
		if i == nil {
			continue
		}
		switch v, why := i.copy.Shows(&w); {
		case v == consistency.Unclear && unknowable == nil:
			unknowable = why
		case v == consistency.Behind && gap == nil:
			gap = &Gap{group: g, informer: i, written: w}
		}
	}
	return gap, unknowable
}

// Selects reports whether a scope of a resource has selectors, so that Behind needs Written.Object.
// It considers all scopes of the declared handles' caches: another controller may wait for the same
// write.
func (d *Declarations) Selects(r schema.GroupResource) bool {
	var last *Cache // most controllers have one
	for _, g := range d.groups() {
		if g.cache != last && g.cache.selects(r) {
			return true
		}
		last = g.cache
	}
	return false
}

// Relisted reports whether a declared informer that keeps the object has listed everything at the
// written version or later. An event may then combine several changes. In doubt it returns true.
func (d *Declarations) Relisted(w Written) bool {
	for _, g := range d.groups() {
		if i := g.keeper(&w); i != nil && i.relisted(w.ResourceVersion) {
			return true
		}
	}
	return false
}

// Missed reports whether a written object may have changed without an event: since the write, a
// declared informer has listed everything again, without the object, which another client may have
// deleted. It returns false for a write without a version or UID, and for adopted informers.
func (d *Declarations) Missed(w Written) bool {
	if w.UID == "" || w.ResourceVersion == "" || w.Gone || w.Marked {
		return false
	}
	for _, g := range d.groups() {
		i := g.keeper(&w)
		if i == nil || i.lw == nil {
			continue
		}
		if _, listed := i.lw.Listed(); !listed || !i.relisted(w.ResourceVersion) {
			continue
		}
		if stored := i.copy.Stored(&w); (stored == nil || stored.GetUID() != w.UID) && !i.copy.Excludes(&w) {
			return true
		}
	}
	return false
}

// Locate finds the objects of hashed writes in the stores of the declared informers, and records
// them in the writes. Call it before each round of Behind: without it, they count as missing. It
// hashes the names in each store once, unless all writes are shown already.
func (d *Declarations) Locate(writes []Written) {
	walked := map[*informer]bool{}
	for _, g := range d.groups() {
		for _, i := range g.members.Load().by {
			if !walked[i] {
				walked[i] = true
				i.copy.Locate(writes)
			}
		}
	}
}

// Failing returns a gap that closes when a declared informer recovers, or nil if none fails or
// waits for its kind to be served.
func (d *Declarations) Failing() *Gap {
	for _, g := range d.groups() {
		if i := g.first((*informer).fails); i != nil {
			return &Gap{group: g, informer: i, failing: true}
		}
	}
	return nil
}

// Recovered returns the last time at which a declared informer began to follow the API server, of
// those that still do, or zero.
func (d *Declarations) Recovered() (last time.Time) {
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

// Resolve asks the API server what became of a write whose answer was lost. It lists the metadata
// of the objects that the write could have changed and that declared informers keep: one name, or
// one namespace if the name is unknown. It returns the writes that those informers do not show yet,
// for Behind.
//
// resolved is false if no declared informer keeps the object, has listed, and has a Backend. err is
// the API server's error. Call Resolve a moment after the write has failed: the API server may
// still be processing it. It makes one request for each place that the informers keep, usually one.
func (d *Declarations) Resolve(ctx context.Context, w Written) (unseen []Written, resolved bool, err error) {
	lists := map[place]*metav1.PartialObjectMetadataList{}
	for _, g := range d.groups() {
		i := g.keeper(&w)
		if i == nil || i.copy.Mapping.Load() == nil || i.env.backend == nil {
			continue // no informer, or it has not listed yet
		}
		at := i.key.place
		at.Namespace, at.Name = cmp.Or(w.Namespace, at.Namespace), cmp.Or(w.Name, at.Name)
		if lists[at] == nil {
			if lists[at], err = i.listMetadata(ctx, at); err != nil {
				return nil, false, fmt.Errorf("cache: cannot find out what became of the write of %s: %w", w.String(), err)
			}
		}
		unseen = append(unseen, i.copy.Compare(lists[at], at, &w)...)
	}
	return unseen, len(lists) > 0, nil
}

// Gap is an informer that does not show a write yet, or that fails.
type Gap struct {
	group    *group
	informer *informer
	written  Written
	failing  bool // written is empty
}

// String returns the informer, the write, and both versions.
func (g *Gap) String() string {
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
	if w.Gone || w.Marked {
		what = "the deletion"
	}
	if w.ResourceVersion != "" {
		at = " at " + w.ResourceVersion
	}
	return fmt.Sprintf("%s %s and does not show %s of %s%s", name, where, what, w, at)
}

// Failing reports whether the gap cannot close before its informer recovers.
func (g *Gap) Failing() bool { return g.informer.fails() }

// Notify calls f when the gap has closed or cannot close any more; call Behind again then. It calls
// f at most once, without locks, perhaps before Notify returns. f must not block. Changes without
// an event, such as bookmarks, do not call f, so also call Behind from time to time. cancel ends
// the notification; f may still be running then. Both may be called from anywhere.
//
// The first Notify for a write adds an event handler to the informer, for as long as it is
// declared.
func (g *Gap) Notify(f func()) (cancel func()) {
	w := &g.written
	if g.failing {
		w = nil
	}
	return g.informer.copy.Notify(w, g.open, f)
}

func (g *Gap) open() bool {
	if g.failing {
		return g.group.has(g.informer) && g.informer.fails()
	}
	if g.group.keeper(&g.written) != g.informer { // the object's informer has left the scope
		return false
	}
	v, _ := g.informer.copy.Shows(&g.written)
	return v == consistency.Behind
}

// Written is a write of an object, as the API server answered it.
type Written = consistency.Write
