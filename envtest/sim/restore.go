// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// Backup is a copy of a Server's objects and of its newest resourceVersion. It does not change.
type Backup struct {
	version int64
	objects map[*store]map[key]*unstructured.Unstructured
	empties map[*store]map[key]string
}

// Backup returns a copy of all objects, for Restore.
func (s *Server) Backup() *Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &Backup{s.version, map[*store]map[key]*unstructured.Unstructured{}, map[*store]map[key]string{}}
	for _, t := range s.tables {
		// Stored objects are never changed.
		b.objects[t.store], b.empties[t.store] = maps.Clone(t.objects), maps.Clone(t.empties)
	}
	return b
}

// Restore replaces all objects by the objects of a backup, as if a backup of etcd had been
// restored. The resourceVersions go back. All watches end, because the API servers must be
// restarted. No event reports the changes. A watch from a later version than the backup's sends
// events whose versions are past its own. A watch from an earlier version receives 410. UIDs do not
// repeat. A resource that was first served after the backup is empty.
func (s *Server) Restore(b *Backup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.graph = b.version, newGraph()
	clear(s.terminating)
	restored := map[*store]bool{}
	for _, t := range s.tables {
		if restored[t.store] {
			continue
		}
		restored[t.store] = true
		t.dropped += len(t.events) // watches count them
		t.events = nil
		t.expire(b.version)
		t.objects, t.empties = maps.Clone(b.objects[t.store]), maps.Clone(b.empties[t.store])
		if t.objects == nil {
			t.objects, t.empties = map[key]*unstructured.Unstructured{}, map[key]string{}
		}
		t.keys = slices.SortedFunc(maps.Keys(t.objects), comparePaths)
		for _, k := range t.keys {
			o := t.objects[k]
			s.graph.observe(t, watch.Added, nil, o)
			s.noteNamespaceLocked(t, watch.Added, o)
		}
		s.crdsChanged = s.crdsChanged || t.Prepare != nil
	}
	close(s.cut)
	s.cut = make(chan struct{})
	s.settleLocked()
}
