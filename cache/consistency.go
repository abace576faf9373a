// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/setpoint-dev/setpoint/internal/consistency"
)

// Written is a state of an object that was written, as the API server has answered.
type Written = consistency.Write

// Behind says whether the declared informers that keep the object show what was written. It returns nil and nil if each does, or
// if there is none. A gap is an informer that follows the API server but does not show it yet; wait for it, for a bounded time,
// and ask again. The error is of an informer for which waiting is no use, and says why: it fails, or versions are not numbers.
// It may be called from anywhere, is cheap where there is nothing to wait for, and makes no request.
func (d *Declarations) Behind(w Written) (gap *Gap, unknowable error) {
	n := d.now.Load()
	if n == nil {
		return nil, nil
	}
	for _, g := range n.groups {
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

// Selects says whether a scope of a resource has label or field selectors, so that Behind wants Written.Object: one that is declared
// here, or by others who use the same cache, and who may have to wait for the same write.
func (d *Declarations) Selects(r schema.GroupResource) bool {
	n := d.now.Load()
	if n == nil {
		return false
	}
	var last *Cache // most have one
	for _, g := range n.groups {
		if g.cache != last && g.cache.selects(r) {
			return true
		}
		last = g.cache
	}
	return false
}

// selects says whether an informer for a resource has selectors.
func (c *Cache) selects(r schema.GroupResource) bool {
	if c.selecting.Load() == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, i := range c.informers {
		if k.selects() > 0 && i.copy.Serves(r) {
			return true
		}
	}
	return false
}

// selects is 1 if there are selectors.
func (k *key) selects() int64 {
	if k.labels == "" && k.fields == "" {
		return 0
	}
	return 1
}

// Relisted says whether a declared informer that keeps the object has listed everything at the version that was written or
// later, so that it may have merged that change with others into one event. In doubt it has.
func (d *Declarations) Relisted(w Written) bool {
	n := d.now.Load()
	if n == nil {
		return false
	}
	for _, g := range n.groups {
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
	n := d.now.Load()
	if n == nil || w.UID == "" || w.ResourceVersion == "" || w.Gone || w.Marked {
		return false
	}
	for _, g := range n.groups {
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

func (i *informer) relisted(version string) bool {
	if i.lw == nil {
		return true
	}
	at, ok := i.lw.Listed()
	c, err := resourceversion.CompareResourceVersion(at, version)
	return !ok || err != nil || c >= 0
}

// keeper returns the informer of the group that keeps the object, or nil.
func (g *group) keeper(w *Written) *informer {
	m := g.members.Load()
	i := m.everything
	if i == nil {
		i = m.keeper(w)
	}
	if i == nil || !i.copy.Keeps(w) {
		return nil
	}
	if w.Host != "" {
		if host := g.cache.host(); host != "" && host != w.Host {
			return nil
		}
	}
	return i
}

func (m *members) keeper(w *Written) *informer {
	if w.Hashed == nil {
		return cmp.Or(m.by[place{Namespace: w.Namespace}], m.by[w.At()])
	}
	for p, i := range m.by {
		if w.In(p) {
			return i
		}
	}
	return nil
}

// Locate finds the objects of hashed writes among those that the declared informers hold, and notes
// in each write what it has found. Call it before each round of Behind for writes with Hashed set:
// Behind takes an object that was not located for one that no store has. Locate hashes the names in
// the stores once, unless every write is shown already. It makes no request.
func (d *Declarations) Locate(writes []Written) {
	n := d.now.Load()
	if n == nil {
		return
	}
	walked := map[*informer]bool{}
	for _, g := range n.groups {
		for _, i := range g.members.Load().by {
			if !walked[i] {
				walked[i] = true
				i.copy.Locate(writes)
			}
		}
	}
}

// host returns scheme://host of the API server, or "" if it is not known.
func (c *Cache) host() string {
	if known := c.server.Load(); known != nil {
		return *known
	}
	host := c.findHost()
	c.server.Store(&host)
	return host
}

func (c *Cache) findHost() string {
	if !c.hasBackend() {
		return ""
	}
	for gvk := range c.backend.Scheme().AllKnownTypes() {
		r, err := c.backend.RESTClient(gvk)
		if err != nil {
			continue
		}
		if u := r.Get().URL(); u != nil {
			of := "/apis/" + gvk.Group + "/" + gvk.Version
			if gvk.Group == "" {
				of = "/api/" + gvk.Version
			}
			return u.Scheme + "://" + u.Host + strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), of)
		}
	}
	return ""
}
