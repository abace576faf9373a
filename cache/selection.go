// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"
	"hash/fnv"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/listwatch"
)

// Selection describes how the API server can select slots, for [NewSlots]. The informers then
// receive fewer objects of other slots. They still drop those that arrive, so an API server that
// cannot select them, or an object without the label, changes only the costs.
type Selection struct {
	label  string
	value  func(owner schema.GroupKind, slot uint8) string
	ranges bool
}

// SelectByLabel returns a Selection for objects that have a label with their slot, in scopes with a
// SlotOwner. value returns the label's value for a slot and the kind of the owner, such as
// LabelValue of package shard. The label must be right, or be missing: the API server sends an
// object with the label of another slot to the replica of that slot only, which drops it.
func SelectByLabel(key string, value func(owner schema.GroupKind, slot uint8) string) Selection {
	return Selection{label: key, value: value}
}

// SelectByNamespace returns a Selection for slots that are ranges of the FNV-1a 64 of the
// namespace: the slot is the highest byte of the hash. ByNamespaceRange of package shard has such
// slots. The requests have a shardSelector, which is alpha in Kubernetes 1.36. It is for all
// scopes, unless the owners are cluster-scoped.
func SelectByNamespace() Selection { return Selection{ranges: true} }

// selection returns how the API server can select the slots of owners of a kind, or of the objects
// themselves if owner is empty.
func (s *Slots) selection(owner schema.GroupKind) (all listwatch.Selection) {
	for _, one := range s.selections {
		all.Ranges = all.Ranges || one.ranges
		if one.label == "" || owner.Kind == "" {
			continue
		}
		all.Label, all.Values = one.label, &[256]string{}
		for slot := range all.Values {
			all.Values[slot] = one.value(owner, uint8(slot)) //nolint:gosec // below 256
		}
	}
	return all
}

// validateSelection returns an error for a Selection that would lose objects.
func (s *Slots) validateSelection(owner schema.GroupKind) error {
	for _, one := range s.selections {
		if wrong := content.IsLabelKey(one.label); one.label != "" && len(wrong) > 0 {
			return fmt.Errorf("cache.SelectByLabel has the key %q: %s", one.label, wrong[0])
		}
		if one.label != "" && one.value == nil {
			return fmt.Errorf("cache.SelectByLabel has no function for the values of %s; add one", one.label)
		}
	}
	all := s.selection(owner)
	if all.Values != nil {
		if err := validateValues(all.Values); err != nil {
			return err
		}
	}
	for _, namespace := range [...]string{"", "default", "kube-system", "a", "b", "team-1"} {
		h := fnv.New64a()
		_, _ = h.Write([]byte(namespace)) // it cannot fail
		slot, err := s.of(types.NamespacedName{Namespace: namespace, Name: "x"})
		if all.Ranges && (err != nil || slot != uint8(h.Sum64()>>56)) {
			return fmt.Errorf("cache.SelectByNamespace needs the slots of shard.ByNamespaceRange, but the namespace %q has the slot %d; leave it out", namespace, slot)
		}
	}
	return nil
}

func validateValues(values *[256]string) error {
	slots := map[string]int{}
	for slot, value := range values {
		if wrong := content.IsLabelValue(value); len(wrong) > 0 {
			return fmt.Errorf("cache.SelectByLabel has the value %q for slot %d: %s", value, slot, wrong[0])
		}
		if other, twice := slots[value]; twice || value == "" {
			return fmt.Errorf("cache.SelectByLabel has the value %q for the slots %d and %d; each needs its own", value, other, slot)
		}
		slots[value] = slot
	}
	return nil
}

// selectedBy describes how the API server selects the slots of an informer.
func (i *informer) selectedBy() string {
	s := i.lw.Selection()
	var by []string
	if s.Label != "" {
		by = append(by, "the label "+s.Label)
	}
	if s.Ranges {
		by = append(by, "shardSelector")
	}
	ignored, refused := i.lw.Unheeded()
	switch text := strings.Join(by, " and "); {
	case text == "":
		return "selected by the client"
	case s.Ranges && refused:
		return "selected by " + text + ", which the API server refuses"
	case ignored:
		return "selected by " + text + ", which the API server ignores"
	default:
		return "selected by " + text
	}
}
