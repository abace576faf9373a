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

// Behind reports what the declared informers that keep the object do not show of a write. It returns
// nil and nil if each shows it, or if no informer keeps the object. A gap is an informer that does not
// show the write yet: wait for it, for a bounded time, and call Behind again. The error names an
// informer that cannot tell, for example because versions are not numbers. Behind makes no request, is
// safe for concurrent use, and is cheap if there is nothing to wait for.
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

// Selects reports whether a scope of a resource has label or field selectors, so that Behind needs
// Written.Object. It looks at all scopes of the caches whose handles are declared: another controller
// may wait for the same write.
func (d *Declarations) Selects(r schema.GroupResource) bool {
	var last *Cache // most have one
	for _, g := range d.groups() {
		if g.cache != last && g.cache.selects(r) {
			return true
		}
		last = g.cache
	}
	return false
}

// Relisted reports whether a declared informer that keeps the object has listed everything at the
// written version or later. Its event may then stand for several changes. In doubt it returns true.
func (d *Declarations) Relisted(w Written) bool {
	for _, g := range d.groups() {
		if i := g.keeper(&w); i != nil && i.relisted(w.ResourceVersion) {
			return true
		}
	}
	return false
}

// Missed reports whether something may have happened to a written object without any event: a declared
// informer has listed everything again since the write, and its store does not have the object. If
// another client has deleted the object before that list, the informer never had it, and no
// event comes. It is false for a write whose version or UID is not known, and for informers that were not
// made here.
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

// Locate finds the objects of hashed writes among those that the declared informers hold, and notes
// in each write what it has found. Call it before each round of Behind for writes with Hashed set:
// Behind takes an object that was not located for one that no store has. Locate hashes the names in
// the stores once, unless every write is shown already. It makes no request.
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

// Failing returns a gap that closes when a declared informer recovers that fails or whose kind is
// not served. It returns nil if there is none. It may be called from anywhere and makes no request.
func (d *Declarations) Failing() *Gap {
	for _, g := range d.groups() {
		if i := g.first((*informer).fails); i != nil {
			return &Gap{group: g, informer: i, failing: true}
		}
	}
	return nil
}

// Recovered returns when the last of the declared informers that follow the API server began to do
// so, or the zero time. It may be called from anywhere and makes no request.
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

// Resolve asks the API server what became of a write whose answer was lost. It lists the metadata of
// what the write could have changed and declared informers keep: one name, or one namespace if the
// name is not known. It returns what those informers do not show yet, to be given to Behind.
// resolved is false if no declared informer keeps the object that was made or adopted by a cache with
// a backend: then nothing was asked. An error means that the question had no answer.
//
// It makes one request, or one for each place if the informers keep several, and returns when ctx
// ends. A request that is still under way in the API server may take effect after Resolve; ask a
// moment after it has failed.
func (d *Declarations) Resolve(ctx context.Context, w Written) (unseen []Written, resolved bool, err error) {
	lists := map[place]*metav1.PartialObjectMetadataList{}
	for _, g := range d.groups() {
		i := g.keeper(&w)
		if i == nil || i.copy.Mapping.Load() == nil || i.env.backend == nil {
			continue // there is none, or it was never listed
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

// Gap is something that an informer does not show yet: a write (Declarations.Behind), or, while it
// fails, anything new (Declarations.Failing).
type Gap struct {
	group    *group
	informer *informer
	written  Written
	failing  bool // the informer fails, and written is empty
}

// String names the informer, what it does not show, and its version.
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
		where = "is at a version that it does not say"
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

// Notify calls f when the gap has closed, or when waiting has become no use: ask again then. f is
// called at most once, off all locks, perhaps before Notify returns, and must not block. Changes
// that reach the store without an event, such as the version of a bookmark, do not call it, so also
// ask from time to time. cancel ends it; f may be running then. Both may be called from anywhere.
//
// The first Notify for a write adds an event handler to the informer, which stays as long as the
// informer is declared anywhere.
func (g *Gap) Notify(f func()) (cancel func()) {
	w := &g.written
	if g.failing {
		w = nil
	}
	return g.informer.copy.Notify(w, g.open, f)
}

// open reports whether there is still something to wait for.
func (g *Gap) open() bool {
	if g.failing {
		return g.group.has(g.informer) && g.informer.fails()
	}
	if g.group.keeper(&g.written) != g.informer { // it has left the scope
		return false
	}
	v, _ := g.informer.copy.Shows(&g.written)
	return v == consistency.Behind
}

// Written is a state of an object that was written, as the API server has answered.
type Written = consistency.Write
