// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/wire"
)

type key struct{ namespace, name string }

func keyOf(o metav1.Object) key { return key{o.GetNamespace(), o.GetName()} }

// table is one version of a resource. The Server's mutex guards it.
type table struct {
	kinds.Definition
	*store
	fields map[string]*managedfields.FieldManager // by subresource
	blank  *unstructured.Unstructured             // an object before its creation
	gone   chan struct{}                          // closed when the resource is withdrawn
}

// sorted returns the objects in path order.
func (t *table) sorted() []*unstructured.Unstructured {
	var list []*unstructured.Unstructured
	for _, k := range t.keys {
		list = append(list, t.objects[k])
	}
	return list
}

// store holds a resource's objects and history, for all its versions. Stored objects are never
// modified.
type store struct {
	stored  schema.GroupVersionKind // the form of its objects
	objects map[key]*unstructured.Unstructured
	keys    []key          // of objects, in path order
	empties map[key]string // see emptyMetadata
	history
	encodings map[*unstructured.Unstructured]map[wire.Form][]byte // of recent objects
	changed   chan struct{}                                       // closed at each event

	conversion *kinds.Conversion // nil: versions differ in their apiVersion only
	// shown has the objects that the webhook converted, by apiVersion.
	shown map[*unstructured.Unstructured]map[string]*unstructured.Unstructured
}

func newStore(stored schema.GroupVersionKind, version int64) *store {
	return &store{
		stored: stored, objects: map[key]*unstructured.Unstructured{}, empties: map[key]string{}, history: history{oldest: version},
		encodings: map[*unstructured.Unstructured]map[wire.Form][]byte{}, changed: make(chan struct{}),
	}
}

const (
	added    = watch.Added
	modified = watch.Modified
)

// storeLocked replaces old (nil: creates) by u and takes ownership of u. Unlike a request, it
// stores everything: also the status, and objects that are not valid.
func (s *Server) storeLocked(t *table, old, u *unstructured.Unstructured) *unstructured.Unstructured {
	if old == nil {
		s.identifyLocked(t, u)
		if t.Generation != kinds.NoGeneration {
			u.SetGeneration(1)
		}
		return s.appendLocked(t, watch.Added, nil, u).DeepCopy()
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
		s.removeLocked(t, old)
		u.SetDeletionTimestamp(nil)
		u.SetDeletionGracePeriodSeconds(nil)
		return s.storeLocked(t, nil, u)
	}
	if jsonvalue.Equal(old.Object, u.Object) {
		return old.DeepCopy()
	}
	if rules.ChangesGeneration(&t.Definition, u, old) {
		u.SetGeneration(old.GetGeneration() + 1)
	}
	if rules.Removable(old, u) {
		s.removeLocked(t, u)
		return u.DeepCopy()
	}
	return s.appendLocked(t, watch.Modified, old, u).DeepCopy()
}

// removeLocked deletes an object with the last state o.
func (s *Server) removeLocked(t *table, o *unstructured.Unstructured) {
	s.appendLocked(t, watch.Deleted, t.objects[keyOf(o)], o.DeepCopy())
}

// appendLocked stores after, which nothing may change from now on, as the next version.
func (s *Server) appendLocked(t *table, kind watch.EventType, before, after *unstructured.Unstructured) *unstructured.Unstructured {
	s.version++
	after.SetResourceVersion(strconv.FormatInt(s.version, 10))
	s.crdsChanged = s.crdsChanged || t.Prepare != nil
	if t.conversion == nil && after.GetAPIVersion() != t.stored.GroupVersion().String() {
		after.SetAPIVersion(t.stored.GroupVersion().String())
	}
	if before != nil {
		before = t.objects[keyOf(after)] // in its stored form
	}
	delete(t.empties, keyOf(after))
	if kind == watch.Deleted {
		delete(t.objects, keyOf(after))
	} else {
		t.objects[keyOf(after)] = after
	}
	s.graph.observe(t, kind, before, after)
	s.noteNamespaceLocked(t, kind, after)
	t.record(event{kind: kind, version: s.version, at: time.Now(), before: before, after: after})
	close(t.changed)
	t.changed = make(chan struct{})
	return after
}
