// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
)

// Serve adds a resource that is not served yet. If it is another version of a served one,
// with is that version's store.
func (s *Store) Serve(d kinds.Definition, with *Storage) *Table {
	if t := s.Tables[d.GVR()]; t != nil {
		return t
	}
	if with == nil {
		with = NewStorage(d.GVK(), s.Version)
	}
	t := &Table{Definition: d, Storage: with, Gone: make(chan struct{})}
	s.Tables[d.GVR()] = t
	return t
}

// Sibling returns the store of another served version of the resource, or nil.
func (s *Store) Sibling(d kinds.Definition) *Storage {
	for gvr, t := range s.Tables {
		if gvr.Group == d.Group && gvr.Resource == d.Name {
			return t.Storage
		}
	}
	return nil
}

// OfKind returns the table of a kind, or nil.
func (s *Store) OfKind(gvk schema.GroupVersionKind) *Table {
	for _, t := range s.Tables {
		if t.GVK() == gvk {
			return t
		}
	}
	return nil
}

// SortedTables returns all tables by their resources.
func (s *Store) SortedTables() []*Table {
	tables := slices.Collect(maps.Values(s.Tables))
	slices.SortFunc(tables, func(a, b *Table) int { return strings.Compare(a.GVR().String(), b.GVR().String()) })
	return tables
}

// TableOf returns the table of a kind as an owner reference names it, or nil.
func (s *Store) TableOf(apiVersion, kind string) *Table {
	for _, t := range s.Tables {
		if t.Kind == kind && t.GV().String() == apiVersion {
			return t
		}
	}
	return nil
}
