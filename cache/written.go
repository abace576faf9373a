// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Written is a state of an object that somebody has written, as the API server has answered.
type Written struct {
	// Host is where the request went to, such as https://10.0.0.1:6443, with the path that a proxy in front of several API servers
	// adds before /api and /apis. Empty is any.
	Host string
	// Resource is what was written. Whether it was of the core API's events or of those of events.k8s.io makes no difference.
	Resource schema.GroupResource
	// Namespace and Name say which. The namespace is empty for a cluster-scoped object.
	Namespace, Name string
	// UID is the object's. Empty is not known: then any object of that name is taken for it.
	UID types.UID
	// ResourceVersion is the one that the write has made, or the last one known before it. Empty is not known, which only does
	// for what is Gone or Marked.
	ResourceVersion string
	// Gone says that the object was deleted. It is shown when the store has no object with that UID at that name, and is past
	// ResourceVersion, if there is one.
	Gone bool
	// Marked says that the object was deleted or marked for deletion; which of both, and at which version, is not known (a
	// deletecollection, an eviction). It is shown when the store has no such object, or one that is marked.
	Marked bool
	// Unknown is what of it is not known, in words, such as "there was no answer". It only goes into the error where there is
	// neither a ResourceVersion nor Gone or Marked, so that nobody can tell. Default: nothing is said.
	Unknown string
	// Subresource is through which subresource it was written. The answer to a scale says nothing of what selectors look at, but
	// that has not changed.
	Subresource string
	// Object is what was answered, for selectors: of its own kind, or its metadata. Default: not known.
	Object runtime.Object
	// Hashed is set if Namespace, Name, UID, and the keys and values of Object's labels are hashes that
	// it has made: then Object has nothing but labels. See Declarations.Locate. Default: they are clear.
	Hashed Hasher

	found place // what Locate has found, of a hashed write
}

// at is where a store may have the object.
func (w *Written) at() place {
	if w.Hashed != nil {
		return w.found
	}
	return place{w.Namespace, w.Name}
}

// String names the object as in client-go's stores, if that is known.
func (w *Written) String() string {
	if w.Hashed != nil {
		if w.found == (place{}) {
			return "an object of which only the hash is known (" + w.Name + ")"
		}
		return storeKey(types.NamespacedName{Namespace: w.found.namespace, Name: w.found.name})
	}
	return storeKey(types.NamespacedName{Namespace: w.Namespace, Name: w.Name})
}

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
		switch v, why := i.shows(&w, &g.scope); {
		case v == unclear && unknowable == nil:
			unknowable = why
		case v == behind && gap == nil:
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
		if k.selects() > 0 && i.serves(r) {
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
	if i == nil && w.Hashed != nil {
		i = m.memberFor(w)
	} else if i == nil && len(m.by) > 0 {
		if i = m.by[place{namespace: w.Namespace}]; i == nil {
			i = m.by[w.at()]
		}
	}
	if i == nil || !i.serves(w.Resource) && !i.recognizes(w) {
		return nil
	}
	if w.Host != "" {
		if host := g.cache.host(); host != "" && host != w.Host {
			return nil
		}
	}
	return i
}

// serves says whether the informer is for a resource, in any version and form. Before the API server has said as what the kind
// is served, the usual plural is taken.
func (i *informer) serves(r schema.GroupResource) bool {
	if m := i.mapping.Load(); m != nil {
		return m.Resource.Resource == r.Resource && sameGroup(r.Resource, m.Resource.Group, r.Group)
	}
	return i.guess.Resource == r.Resource && (i.key.gvk.Version == "" || sameGroup(r.Resource, i.guess.Group, r.Group))
}

// sameGroup knows that events are served, and stored once, in two groups.
func sameGroup(resource, a, b string) bool {
	const newer = "events.k8s.io"
	return a == b || resource == "events" && (a == "" && b == newer || a == newer && b == "")
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
