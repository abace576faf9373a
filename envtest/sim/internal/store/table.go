// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/codec"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/wire"
)

// Key is namespace and name of an object.
type Key struct{ Namespace, Name string }

// KeyOf returns the key of an object.
func KeyOf(o metav1.Object) Key { return Key{Namespace: o.GetNamespace(), Name: o.GetName()} }

// Table is one version of a resource. The Server's mutex guards it.
type Table struct {
	kinds.Definition
	*Storage
	Fields map[string]*managedfields.FieldManager // by subresource
	blank  *unstructured.Unstructured             // an object before its creation
	Gone   chan struct{}                          // closed when the resource is withdrawn
}

// Sorted returns the objects in path order.
func (t *Table) Sorted() []*unstructured.Unstructured {
	var list []*unstructured.Unstructured
	for _, k := range t.Keys {
		list = append(list, t.Objects[k])
	}
	return list
}

// Storage holds a resource's objects and history, for all its versions. Stored objects are never
// modified.
type Storage struct {
	StorageKind schema.GroupVersionKind // the form of its objects
	Objects     map[Key]*unstructured.Unstructured
	Keys        []Key          // of objects, in path order
	Empties     map[Key]string // see emptyMetadata
	history
	encodings map[*unstructured.Unstructured]map[wire.Form][]byte // of recent objects
	Changed   chan struct{}                                       // closed at each event

	Conversion *kinds.Conversion // nil: versions differ in their apiVersion only
	// shown has the objects that the webhook converted, by apiVersion.
	Shown map[*unstructured.Unstructured]map[string]*unstructured.Unstructured
}

// NewStorage returns a storage without objects. stored is the form of its objects.
func NewStorage(stored schema.GroupVersionKind, version int64) *Storage {
	return &Storage{
		StorageKind: stored, Objects: map[Key]*unstructured.Unstructured{}, Empties: map[Key]string{}, history: history{Oldest: version},
		encodings: map[*unstructured.Unstructured]map[wire.Form][]byte{}, Changed: make(chan struct{}),
	}
}

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
}

// change is a write that controllers have not seen yet.
type change struct {
	Table         *Table
	Kind          watch.EventType
	Before, After *unstructured.Unstructured
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
		s.changes = append(s.changes, change{Table: t, Kind: watch.Deleted, Before: o, After: o})
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
	s.changes = append(s.changes, change{Table: t, Kind: kind, Before: before, After: after})
	t.log(Event{Kind: kind, Version: s.Version, At: time.Now(), Before: before, After: after})
	close(t.Changed)
	t.Changed = make(chan struct{})
	return after
}

// Codec returns the codec of the kind.
func (t *Table) Codec() codec.Codec {
	return codec.Codec{Kind: t.GVK(), Typed: t.BuiltIn, Schema: t.Schema}
}

// Blank returns an object before its creation. It must not be modified.
func (t *Table) Blank() (*unstructured.Unstructured, error) {
	var err error
	if t.blank == nil {
		t.blank, err = t.Codec().Empty()
	}
	return t.blank, err
}
