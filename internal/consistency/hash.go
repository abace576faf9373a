// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
)

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
