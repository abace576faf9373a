// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/setpoint-dev/setpoint/webhook/internal/certs"
)

// differs returns the path of a wanted field that the object does not have, or nil.
func differs(want, live *unstructured.Unstructured) fieldpath.Path {
	for _, field := range []string{"webhooks", "spec"} {
		if wanted, ok := want.Object[field]; ok {
			name := field
			if path := differing(wanted, live.Object[field], fieldpath.Path{{FieldName: &name}}); path != nil {
				return path
			}
		}
	}
	return nil
}

func differing(want, live any, at fieldpath.Path) fieldpath.Path {
	switch want := want.(type) {
	case map[string]any:
		has, ok := live.(map[string]any)
		if !ok {
			return at
		}
		for _, field := range slices.Sorted(maps.Keys(want)) {
			if path := differing(want[field], has[field], append(at[:len(at):len(at)], fieldpath.PathElement{FieldName: &field})); path != nil {
				return path
			}
		}
		return nil
	case []any:
		if len(at) == 1 { // webhooks, by name
			return differingWebhook(want, live, at)
		}
		if has, ok := live.([]any); ok && sameElements(want, has, at) {
			return nil
		}
		return at // most lists have one owner
	}
	if value.Equals(value.NewValueInterface(want), value.NewValueInterface(live)) {
		return nil
	}
	return at
}

// sameElements reports whether the elements of a list have the wanted fields. They may have more,
// which are the API server's defaults.
func sameElements(want, has []any, at fieldpath.Path) bool {
	if len(want) != len(has) {
		return false
	}
	for i := range want {
		if differing(want[i], has[i], at) != nil {
			return false
		}
	}
	return true
}

func differingWebhook(want []any, live any, at fieldpath.Path) fieldpath.Path {
	has, _ := live.([]any)
	for _, one := range want {
		name := nameOf(one)
		path := append(at[:len(at):len(at)], fieldpath.PathElement{Key: fieldpath.KeyByFields("name", name)})
		i := slices.IndexFunc(has, func(o any) bool { return nameOf(o) == name })
		if i < 0 {
			return path
		}
		if path := differing(one, has[i], path); path != nil {
			return path
		}
	}
	return nil
}

func nameOf(webhook any) string {
	fields, _ := webhook.(map[string]any)
	name, _ := fields["name"].(string)
	return name
}

// takenBy returns the field manager that has changed a path. It returns "" if owner still has it,
// or nothing is known about others.
func takenBy(live *unstructured.Unstructured, path fieldpath.Path, owner string) (manager string) {
	owned := false
	of := certs.LastManager(live, func(manager string, fields *fieldpath.Set) bool {
		has := fields.Has(path) || !below(fields, path).Empty() || whole(fields, path)
		owned = owned || has && manager == owner
		return has && manager != owner
	})
	if owned {
		return ""
	}
	return cmp.Or(of, certs.LastManager(live, func(manager string, _ *fieldpath.Set) bool { return manager != owner }))
}

// below returns the fields below a path.
func below(set *fieldpath.Set, path fieldpath.Path) *fieldpath.Set {
	for _, element := range path {
		set = set.WithPrefix(element)
	}
	return set
}

// whole reports whether the set has a field above the path as a whole, so that it has one owner.
func whole(set *fieldpath.Set, path fieldpath.Path) bool {
	for n := 1; n < len(path); n++ {
		if set.Has(path[:n]) && below(set, path[:n]).Empty() {
			return true
		}
	}
	return false
}

// oldWebhook returns the index of a webhook that owner has applied and no longer wants, or -1.
func oldWebhook(want, live *unstructured.Unstructured, owner string) int {
	if kind := want.GetKind(); kind != mutatingKind.Kind && kind != validatingKind.Kind {
		return -1
	}
	wanted, _ := want.Object["webhooks"].([]any)
	has, _ := live.Object["webhooks"].([]any)
	for i, one := range has {
		name := nameOf(one)
		if slices.ContainsFunc(wanted, func(o any) bool { return nameOf(o) == name }) {
			continue
		}
		path := fieldpath.MakePathOrDie("webhooks", fieldpath.KeyByFields("name", name), "rules")
		if slices.ContainsFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
			return e.Manager == owner && certs.FieldsOf(e).Has(path)
		}) {
			return i
		}
	}
	return -1
}
