// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// Backup is a copy of a store's objects and of its newest resourceVersion. It does not change.
type Backup struct {
	version int64
	objects map[*Storage]map[Key]*unstructured.Unstructured
	empties map[*Storage]map[Key]string
}

// Backup returns a copy of all objects.
func (s *Store) Backup() *Backup {
	b := &Backup{s.Version, map[*Storage]map[Key]*unstructured.Unstructured{}, map[*Storage]map[Key]string{}}
	for _, t := range s.Tables {
		// Stored objects are never changed.
		b.objects[t.Storage], b.empties[t.Storage] = maps.Clone(t.Objects), maps.Clone(t.Empties)
	}
	return b
}

// Restore replaces all objects by the objects of a backup, and ends all watches. Controllers see
// the restored objects as new ones.
func (s *Store) Restore(b *Backup) {
	s.Version, s.changes = b.version, nil
	restored := map[*Storage]bool{}
	for _, t := range s.Tables {
		if restored[t.Storage] {
			continue
		}
		restored[t.Storage] = true
		t.dropped += len(t.events) // watches count them
		t.events = nil
		t.Expire(b.version)
		t.Objects, t.Empties = maps.Clone(b.objects[t.Storage]), maps.Clone(b.empties[t.Storage])
		if t.Objects == nil {
			t.Objects, t.Empties = map[Key]*unstructured.Unstructured{}, map[Key]string{}
		}
		t.Keys = slices.SortedFunc(maps.Keys(t.Objects), comparePaths)
		for _, k := range t.Keys {
			s.changes = append(s.changes, change{t, Event{Kind: watch.Added, After: t.Objects[k]}})
		}
	}
	s.CutWatches()
}
