// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/crdschema"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
)

// Store has the objects of all resources. Its users hold its lock, except for Lock itself.
type Store struct {
	sync.Mutex

	Tables  map[schema.GroupVersionResource]*Table
	Version int64         // the newest resourceVersion of all kinds
	uids    int           // how many were given out
	names   int           // how many were generated
	reviews int           // how many were sent to webhooks
	Cut     chan struct{} // closed and replaced to end all watches
	changes []change

	// Schemas has the schemas of CustomResourceDefinitions. Nil: custom objects are not checked.
	Schemas crdschema.Schemas
}

// change is a write that controllers have not seen yet.
type change struct {
	Table *Table
	Event
}

// New returns an empty store.
func New() *Store {
	return &Store{Tables: map[schema.GroupVersionResource]*Table{}, Version: 1, Cut: make(chan struct{})}
}

// TakeChanges returns the writes since the last call. The result is valid until the next write.
func (s *Store) TakeChanges() []change {
	changes := s.changes
	s.changes = s.changes[:0]
	return changes
}

// Withdraw stops serving a resource. Its objects are gone.
func (s *Store) Withdraw(t *Table) {
	s.Version += int64(len(t.Objects)) // one deletion each
	for _, o := range t.Sorted() {
		s.changes = append(s.changes, change{t, Event{Kind: watch.Deleted, Before: o, After: o}})
	}
	s.Drop(t.GVR())
}

// Drop stops serving a version of a resource whose objects stay or are gone already.
func (s *Store) Drop(gvr schema.GroupVersionResource) {
	close(s.Tables[gvr].Gone)
	delete(s.Tables, gvr)
}

// CutWatches ends all open watches.
func (s *Store) CutWatches() {
	close(s.Cut)
	s.Cut = make(chan struct{})
}

// Put replaces old (nil: creates) by u and takes ownership of u. Unlike a request, it
// stores everything: also the status, and objects that are not valid.
func (s *Store) Put(t *Table, old, u *unstructured.Unstructured) *unstructured.Unstructured {
	if old == nil {
		s.Identify(t, u)
		if t.Generation != kinds.NoGeneration {
			u.SetGeneration(1)
		}
		return s.Record(t, watch.Added, nil, u).DeepCopy()
	}
	if u.GetUID() == "" {
		u.SetUID(old.GetUID())
	}
	u.SetCreationTimestamp(old.GetCreationTimestamp())
	u.SetDeletionTimestamp(old.GetDeletionTimestamp())
	u.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	u.SetGeneration(old.GetGeneration())
	u.SetResourceVersion(old.GetResourceVersion())
	if u.GetUID() != old.GetUID() { // Put with another uid: delete and create
		s.Remove(t, old)
		u.SetDeletionTimestamp(nil)
		u.SetDeletionGracePeriodSeconds(nil)
		return s.Put(t, nil, u)
	}
	if jsonvalue.Equal(old.Object, u.Object) {
		return old.DeepCopy()
	}
	if rules.ChangesGeneration(&t.Definition, u, old) {
		u.SetGeneration(old.GetGeneration() + 1)
	}
	if rules.Removable(old, u) {
		s.Remove(t, u)
		return u.DeepCopy()
	}
	return s.Record(t, watch.Modified, old, u).DeepCopy()
}

// Remove deletes an object with the last state o.
func (s *Store) Remove(t *Table, o *unstructured.Unstructured) {
	s.Record(t, watch.Deleted, t.Objects[KeyOf(o)], o.DeepCopy())
}

// Record stores after, which nothing may change from now on, as the next version.
func (s *Store) Record(t *Table, kind watch.EventType, before, after *unstructured.Unstructured) *unstructured.Unstructured {
	s.Version++
	after.SetResourceVersion(strconv.FormatInt(s.Version, 10))
	if t.Conversion == nil && after.GetAPIVersion() != t.StorageKind.GroupVersion().String() {
		after.SetAPIVersion(t.StorageKind.GroupVersion().String())
	}
	if before != nil {
		before = t.Objects[KeyOf(after)] // in its stored form
	}
	delete(t.Empties, KeyOf(after))
	if kind == watch.Deleted {
		delete(t.Objects, KeyOf(after))
	} else {
		t.Objects[KeyOf(after)] = after
	}
	e := Event{Kind: kind, Version: s.Version, At: time.Now(), Before: before, After: after}
	s.changes = append(s.changes, change{t, e})
	t.log(e)
	close(t.Changed)
	t.Changed = make(chan struct{})
	return after
}

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
