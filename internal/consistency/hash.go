// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// Hasher hashes text of one sort: "namespace", "name" (namespace/name, or the name of a
// cluster-scoped object), "uid", "label" (a key) or "value" (key=value). The hash of the empty text
// is empty. Two Hashers are equal, as == compares them, if their hashes are.
type Hasher interface {
	Hash(sort, text string) string
}

// Locate notes in each hashed write which object of the store it is of. It hashes the names in the
// store once, unless every write is shown already.
func (c *Copy) Locate(writes []Write) {
	at := c.version()
	wanted := map[Hasher]map[string][]*Write{}
	for n := range writes {
		w := &writes[n]
		switch {
		case w.Hashed == nil || w.found != (types.NamespacedName{}):
		case !c.Serves(w.Resource) && (!c.Foreign || c.certain()):
		case !w.Gone && !w.Marked && past(at, w.ResourceVersion): // shown
		default:
			if wanted[w.Hashed] == nil {
				wanted[w.Hashed] = map[string][]*Write{}
			}
			wanted[w.Hashed][w.Name] = append(wanted[w.Hashed][w.Name], w)
		}
	}
	if len(wanted) == 0 {
		return
	}
	for _, key := range c.store().ListKeys() {
		for hasher, by := range wanted {
			for _, w := range by[hasher.Hash("name", key)] {
				w.found = nameOf(key)
			}
		}
	}
}

// nameOf splits a key of client-go's stores.
func nameOf(key string) types.NamespacedName {
	namespace, name, _ := toolscache.SplitMetaNamespaceKey(key)
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// excludesHashed is Excludes for a hashed write. It decides selectors of labels by equality and
// existence, and those of the fields metadata.namespace and metadata.name. In doubt it is false.
func (c *Copy) excludesHashed(w *Write, o map[string]string) bool {
	if c.Labels != nil {
		if set, known := w.labelsFor(c.Labels, o); known && !c.Labels.Matches(set) {
			return true
		}
	}
	if c.Fields == nil {
		return false
	}
	for _, r := range c.Fields.Requirements() {
		if equal, known := w.fieldIs(r, c.Place, c.Fields); known && equal == (r.Operator == selection.NotEquals) {
			return true
		}
	}
	return false
}

// labelsFor returns labels that a selector matches if and only if it matches the hashed ones. They
// are not known if it compares numbers.
func (w *Write) labelsFor(selector labels.Selector, hashed map[string]string) (set labels.Set, known bool) {
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
func (w *Write) fieldIs(r fields.Requirement, in types.NamespacedName, all fields.Selector) (equal, known bool) {
	switch r.Field {
	case "metadata.namespace":
		return w.Hashed.Hash("namespace", r.Value) == w.Namespace, true
	case "metadata.name":
	default:
		return false, false
	}
	namespace := in.Namespace
	if v, found := all.RequiresExactMatch("metadata.namespace"); found {
		namespace = v
	}
	if w.Hashed.Hash("namespace", namespace) != w.Namespace {
		return false, false
	}
	return w.Hashed.Hash("name", storeKey(types.NamespacedName{Namespace: namespace, Name: r.Value})) == w.Name, true
}
