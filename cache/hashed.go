// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
)

// Hasher hashes text of one sort: "namespace", "name" (namespace/name, or the name of a
// cluster-scoped object), "uid", "label" (a key) or "value" (key=value). The hash of the empty text
// is empty. Two Hashers are equal, as == compares them, if their hashes are.
type Hasher interface {
	Hash(sort, text string) string
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
				i.locate(writes)
			}
		}
	}
}

// locate is Locate for one informer.
func (i *informer) locate(writes []Written) {
	at := i.shared.GetStore().LastStoreSyncResourceVersion()
	wanted := map[Hasher]map[string][]*Written{}
	for n := range writes {
		w := &writes[n]
		switch {
		case w.Hashed == nil || w.found != place{}:
		case !i.serves(w.Resource) && (i.key.foreign == nil || i.certain()):
		case !w.Gone && !w.Marked && past(at, w.ResourceVersion): // shown
		default:
			if wanted[w.Hashed] == nil {
				wanted[w.Hashed] = map[string][]*Written{}
			}
			wanted[w.Hashed][w.Name] = append(wanted[w.Hashed][w.Name], w)
		}
	}
	if len(wanted) == 0 {
		return
	}
	for _, key := range i.shared.GetStore().ListKeys() {
		for hasher, by := range wanted {
			for _, w := range by[hasher.Hash("name", key)] {
				w.found = placeOf(key)
			}
		}
	}
}

// placeOf splits a key of client-go's stores.
func placeOf(key string) place {
	for i := range key {
		if key[i] == '/' {
			return place{key[:i], key[i+1:]}
		}
	}
	return place{name: key}
}

// is reports whether the object is the one that was written, as far as the UID tells.
func (w *Written) is(o Object) bool {
	if w.UID == "" || o.GetUID() == w.UID {
		return true
	}
	return w.Hashed != nil && w.Hashed.Hash("uid", string(o.GetUID())) == string(w.UID)
}

// memberFor returns the member that keeps the object of a hashed write, or nil.
func (m *members) memberFor(w *Written) *informer {
	for p, i := range m.by {
		if w.in(p) {
			return i
		}
	}
	return nil
}

// in reports whether a place contains the object of a hashed write.
func (w *Written) in(p place) bool {
	if p.name != "" {
		return w.Hashed.Hash("name", storeKey(types.NamespacedName{Namespace: p.namespace, Name: p.name})) == w.Name
	}
	return w.Hashed.Hash("namespace", p.namespace) == w.Namespace
}

// excludesHashed is excludes for a hashed write. It decides selectors of labels by equality and
// existence, and those of the fields metadata.namespace and metadata.name. In doubt it is false.
func (s *Scope) excludesHashed(w *Written, o map[string]string, in place) bool {
	if s.Labels != nil {
		if set, known := w.labelsFor(s.Labels, o); known && !s.Labels.Matches(set) {
			return true
		}
	}
	if s.Fields == nil {
		return false
	}
	for _, r := range s.Fields.Requirements() {
		if equal, known := w.fieldIs(r, in, s.Fields); known && equal == (r.Operator == selection.NotEquals) {
			return true
		}
	}
	return false
}

// labelsFor returns labels that a selector matches if and only if it matches the hashed ones. They
// are not known if it compares numbers.
func (w *Written) labelsFor(selector labels.Selector, hashed map[string]string) (set labels.Set, known bool) {
	requirements, _ := selector.Requirements()
	set = labels.Set{}
	for _, r := range requirements {
		if r.Operator() == selection.GreaterThan || r.Operator() == selection.LessThan {
			return nil, false
		}
		value, there := hashed[w.Hashed.Hash("label", r.Key())]
		if !there {
			continue
		}
		if _, decided := set[r.Key()]; !decided {
			set[r.Key()] = "\x00" // none that a selector can name
		}
		for v := range r.Values() {
			if w.Hashed.Hash("value", r.Key()+"="+v) == value {
				set[r.Key()] = v
			}
		}
	}
	return set, true
}

// fieldIs reports whether a field has the value of a requirement. A name can be told only together
// with its namespace.
func (w *Written) fieldIs(r fields.Requirement, in place, all fields.Selector) (equal, known bool) {
	switch r.Field {
	case "metadata.namespace":
		return w.Hashed.Hash("namespace", r.Value) == w.Namespace, true
	case "metadata.name":
	default:
		return false, false
	}
	namespace := in.namespace
	if v, found := all.RequiresExactMatch("metadata.namespace"); found {
		namespace = v
	}
	if w.Hashed.Hash("namespace", namespace) != w.Namespace {
		return false, false
	}
	return w.Hashed.Hash("name", storeKey(types.NamespacedName{Namespace: namespace, Name: r.Value})) == w.Name, true
}
