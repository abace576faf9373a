// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"maps"
	"slices"
)

// Missed reports whether something may have happened to a written object without any event: a declared
// informer has listed everything anew since the write, and its store does not have the object. If
// another client has deleted the object before that list, the informer never had it, and nobody is
// told. It is false for a write whose version or UID is not known, and for informers that were not
// made here.
func (d *Declarations) Missed(w Written) bool {
	n := d.now.Load()
	if n == nil || w.UID == "" || w.ResourceVersion == "" || w.Gone || w.Marked {
		return false
	}
	for _, g := range n.groups {
		i := g.keeper(&w)
		if i == nil || i.lw == nil || !i.relisted(w.ResourceVersion) {
			continue
		}
		if stored := i.stored(&w); (stored == nil || stored.GetUID() != w.UID) && !g.scope.excludes(&w, i.key.gvk) {
			return true
		}
	}
	return false
}

// OnRelist calls f whenever an informer has listed everything anew, of a cache that something is
// declared of, perhaps before its store has the list. f must not block. Call cancel once; f may be
// running then.
func (d *Declarations) OnRelist(f func()) (cancel func()) {
	d.relisted.Store(&f)
	d.follow()
	return func() {
		d.relisted.Store(nil)
		d.mu.Lock()
		caches := slices.Collect(maps.Keys(d.caches))
		clear(d.caches)
		d.mu.Unlock()
		for _, c := range caches {
			c.followers.Delete(d)
		}
	}
}

// follow has all caches of which something is declared tell of relists.
func (d *Declarations) follow() {
	n := d.now.Load()
	if n == nil || d.relisted.Load() == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.caches == nil {
		d.caches = map[*Cache]struct{}{}
	}
	for _, g := range n.groups {
		d.caches[g.cache] = struct{}{}
		g.cache.followers.Store(d, struct{}{})
	}
}

// tellRelisted tells who follows the cache that an informer has listed everything.
func (c *Cache) tellRelisted() {
	c.followers.Range(func(follower, _ any) bool {
		if d, ok := follower.(*Declarations); ok {
			if f := d.relisted.Load(); f != nil {
				(*f)()
			}
		}
		return true
	})
}
